"""The pages in `docs/` against the code: every option with its default, every reason, every YAML block, every link."""

import ast
import json
import re
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from recordmill.pipeline.sources.faults import REASONS
from recordmill.pipeline.sources.options import AnySource, SourceOptions, TableOptions
from recordmill.pipeline.spec.features import AnyFeature
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.yaml_document import _models
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.texts.text_spec import Text, Texts, Tokenized
from tests import every_kind

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md")), ROOT / "examples/README.md"]
}
COMMON: tuple[type[BaseModel], ...] = (SourceOptions, TableOptions, Feature)
"""The bases whose options stand on the page of the spec, not on those of formats and kinds."""
NUMBERS = "numbers_and_categories.md"
WHERE = {
    "Spec": ("spec.md", "Top-level keys"),
    "SplitBy": ("spec.md", "Splits"),
    "Rejects": ("rejects.md", "Limits"),
    "Duplicates": ("duplicates.md", "Options"),
    "Gate": ("gate.md", "Options"),
    "About": ("exchange.md", "About"),
    "FeatureGate": ("gate.md", "Limits of a feature"),
    "Pack": ("text.md", "Several documents in a row (packing)"),
    "Image": ("images.md", "Images"),
    "ImageSequence": ("image_sequences.md", "Options"),
    "Boxes": ("boxes.md", "Boxes"),
    "Mask": ("segmentation.md", "Masks"),
    "Masks": ("segmentation.md", "A mask for each object"),
    "Keypoints": ("keypoints.md", "Key points"),
    "Text": ("text.md", "Options"),
    "Texts": ("text.md", "Several texts a row"),
    "Pair": ("text.md", "Two texts as one"),
    "Category": (NUMBERS, "category"),
    "Categories": (NUMBERS, "categories"),
    "Number": (NUMBERS, "number"),
    "Numbers": (NUMBERS, "numbers"),
    "Raw": (NUMBERS, "raw"),
    "AnnotatedImages": ("sources/yolo.md", "Options"),
    "Csv": ("sources/csv.md", "Options"),
    "Tsv": ("sources/csv.md", "Options"),
    "TextFiles": ("sources/text.md", "Options"),
}
for _model in _models(AnySource):
    _format = typing.get_args(_model.model_fields["format"].annotation)[0]
    for _page, _text in PAGES.items():
        if _page.startswith(("docs/spec.md", "docs/sources/")) and re.search(rf"^#+ {_format}$", _text, re.MULTILINE):
            WHERE.setdefault(_model.__name__, (_page.removeprefix("docs/"), _format))
"""By the options' class: the page, and the heading under which its table of options stands; of a source its format."""
INLINE = {
    "InstructionColumns": ("chats.md", "Options"),
    "ContentKey": ("spec.md", "Keys"),
    "Window": ("text.md", "Options"),
    "Normalization": ("images.md", "Normalization"),
    "SharedVocabulary": ("text.md", "Vocabularies"),
}
"""Options that are written as a small mapping inside others, `{content: image}`: they have no table of their own."""
SMALLEST = {
    "name": "part",
    "source": {"format": "jsonl", "path": "rows.jsonl"},
    "features": {"category": {"kind": "category"}},
}


def models(model: type[BaseModel] = Spec) -> Iterator[type[BaseModel]]:
    """A class of options, and those that its options hold."""
    yield model
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            yield from models(inner)


MODELS = list(dict.fromkeys(models()))
TABLED = [model for model in MODELS if model.__name__ not in INLINE]


def without_code(text: str) -> str:
    """A page without fenced code: comments in it look like headings."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def section(page: str, title: str) -> str:
    """What stands below a heading, up to the next one."""
    text = without_code(PAGES[f"docs/{page}"])
    (found,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return str(found)


def rows(text: str) -> dict[str, list[str]]:
    """The rows of tables that begin with code, by that code: their other cells."""
    return {name: cells.split(" | ") for name, cells in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)}


def table(text: str, head: str) -> str:
    """The rows of the table with this start of its head, as text."""
    found = re.search(rf"^\| {head} \|[^\n]*\n\|---[^\n]*\n(.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def place(model: type[BaseModel]) -> tuple[str, str]:
    """The page and the heading of a class' options; of other kinds the page in the list of kinds, under `Options`."""
    if model.__name__ in WHERE:
        return WHERE[model.__name__]
    (kind,) = literals(model.model_fields["kind"].annotation)
    (link,) = rows(table(section("spec.md", "Features"), "`kind`"))[kind]
    return re.findall(r"\((.*?)\)", link)[0], "Options"


def options_of(model: type[BaseModel]) -> dict[str, list[str]]:
    """The table of a class' options: default and meaning by option."""
    return rows(table(section(*place(model)), "(?:option|key)"))


def is_referenced(model: type[BaseModel]) -> bool:
    """Whether the page leads to the generated reference for a class' options, and shows those that need more words."""
    heading = "datasetyaml" if model is Spec else model.__name__.lower()
    return f"reference/options.md#{heading})" in section(*place(model))


def own(model: type[BaseModel]) -> set[str]:
    """The options not inherited from a common base."""
    bases = [*COMMON, *([Tokenized] if model is Texts else [])]  # the options of both stand under those of `text`
    return set(model.model_fields) - {name for base in bases if issubclass(model, base) for name in base.model_fields}


def is_default(written: str, meaning: str, field: Any) -> bool:
    """Whether a field's default is written in its row; that of one format of several may stand in the meaning."""
    if field.is_required():
        return written == "needed"
    if field.default is None:
        return written == "none"
    value, text = to_jsonable_python(field.default), written.strip("`")
    return value == text or f"`{json.dumps(value)}`" in meaning or bool(yaml.safe_load(text) == value)


def literals(annotation: Any) -> list[Any]:
    """The values of a choice."""
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return [value for value in inner if not isinstance(value, bool)]
    return [value for one in inner for value in literals(one)]


def test_every_class_of_options_has_its_place() -> None:
    others = {model.__name__ for model in MODELS} - WHERE.keys() - INLINE.keys()
    assert others == {model.__name__ for model in MODELS if issubclass(model, Feature)} - WHERE.keys()


@pytest.mark.parametrize("model", TABLED, ids=lambda model: model.__name__)
def test_every_option_stands_there_with_its_default(model: type[BaseModel]) -> None:
    found = options_of(model)
    assert found.keys() <= model.model_fields.keys()
    assert is_referenced(model) or own(model) <= found.keys()
    for name, (default, meaning) in found.items():
        assert len(meaning) > 15 or name == "format", name
        assert is_default(default, meaning, model.model_fields[name]), f"{name}: {default}"


@pytest.mark.parametrize(("title", "bases"), [("Sources", (SourceOptions, TableOptions)), ("Features", (Feature,))])
def test_the_common_options_stand_in_the_spec(title: str, bases: tuple[type[BaseModel], ...]) -> None:
    found = rows(table(section("spec.md", title), "option"))
    fields = {name: field for base in bases for name, field in base.model_fields.items()}
    assert found.keys() == fields.keys()
    assert [name for name, (default, text) in found.items() if not is_default(default, text, fields[name])] == []


@pytest.mark.parametrize("name", INLINE)
def test_a_small_mapping_stands_there_with_all_its_keys(name: str) -> None:
    (model,) = (model for model in MODELS if model.__name__ == name)
    for option in model.model_fields:
        assert re.search(rf"^\|.*`[^`]*\{{[^`]*\b{option}: ", section(*INLINE[name]), re.MULTILINE), option


@pytest.mark.parametrize("model", TABLED, ids=lambda model: model.__name__)
def test_every_value_of_a_choice_stands_there(model: type[BaseModel]) -> None:
    """In the option's row, or in a table of the page that has the option at its head."""
    page, found = PAGES[f"docs/{place(model)[0]}"], options_of(model)
    shown = own(model) & {*model.__annotations__, *(Tokenized.__annotations__ if model is Text else ())}
    for name in shown & found.keys() if is_referenced(model) else shown:
        values = table(page, f"`{name}`").splitlines()
        where = " ".join([found[name][1], *(value.split(" | ")[0] for value in values)])
        missing = [value for value in literals(model.model_fields[name].annotation) if f"`{value}`" not in where]
        assert missing == [], name


@pytest.mark.parametrize(
    ("title", "tag", "union"), [("Features", "kind", AnyFeature), ("Sources", "format", AnySource)]
)
def test_every_kind_and_format_stands_in_the_lists(title: str, tag: str, union: Any) -> None:
    listed = rows(table(section("spec.md", title), f"`{tag}`"))
    assert set(listed) == {value for model in _models(union) for value in literals(model.model_fields[tag].annotation)}


def test_every_part_stands_in_the_table_of_what_is_stored() -> None:
    text = section("spec.md", "What is stored, and what the reader gives")
    listed, kind = dict[str, set[str]](), ""
    for first, name in re.findall(r"^\|([^|]*)\| `(x\w*)` \|", text, re.MULTILINE):
        kind = first.strip() or kind
        listed.setdefault(kind, set()).add(name)
    listed = {each: names for kinds, names in listed.items() for each in kinds.split(", ")}
    found = dict[str, set[str]]()
    for feature in every_kind.spec(ROOT, more_images=True, arrays=True).features.values():
        parts = [f"x_{part}" for part in (*feature.parts(), *feature.read_parts())]
        found.setdefault(f"`{feature.kind}`", set()).update(["x", *parts])
    assert {kind: names for kind, names in listed.items() if kind.startswith("`")} == found


def test_every_reason_stands_there_and_no_page_has_another() -> None:
    found = rows(table(section("rejects.md", "Codes"), "code"))
    assert {name: cells[0] for name, cells in found.items()} == REASONS
    assert all("`" in such_as for _, such_as in found.values()), "each has an example"
    for page, text in PAGES.items():
        assert rows(table(text, "reason")).keys() <= REASONS.keys(), page


def blocks(language: str) -> list[Any]:
    """The code of the pages, by page and line."""
    found = []
    for page, text in PAGES.items():
        for match in re.finditer(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start(1)) + 1
            found.append(pytest.param(textwrap.dedent(match[1]), id=f"{page}:{line}"))
    return found


def test_there_are_blocks() -> None:
    assert len(blocks("yaml")) >= 30
    assert len(blocks("python")) >= 6


@pytest.mark.parametrize("block", blocks("yaml"))
def test_every_block_is_a_spec_or_a_part_of_one(block: str) -> None:
    keys = yaml.safe_load(block)
    spec = parse_spec(block if "name" in keys else yaml.safe_dump(SMALLEST | keys, sort_keys=False))
    assert set(keys) <= spec.model_fields_set


@pytest.mark.parametrize("block", blocks("python"))
def test_every_block_is_python(block: str) -> None:
    ast.parse(block)


def test_the_example_shows_every_top_level_key_and_most_kinds() -> None:
    text = PAGES["docs/spec.md"].partition("## A complete example\n")[2]
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    spec = parse_spec(block[1])
    assert set(Spec.model_fields) == spec.model_fields_set
    assert len({feature.kind for feature in spec.features.values()}) >= 6
    assert any(feature.optional for feature in spec.features.values())


def anchors(text: str) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: str) -> list[tuple[str, str]]:
    """Where a page's links lead: the file, relative to the repository, and the heading."""
    targets = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", without_code(PAGES[page]))]
    inner = [(file, heading) for file, _, heading in targets if "://" not in file]
    folder = (ROOT / page).parent
    return [(str((folder / file).resolve().relative_to(ROOT)) if file else page, heading) for file, heading in inner]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for file, heading in links(page):
        assert (ROOT / file).exists(), file
        assert not heading or heading in anchors(PAGES[file]), f"{file}#{heading}"


def test_every_page_is_linked() -> None:
    linked = {file for page in PAGES for file, _ in links(page) if file != page}
    assert [page for page in PAGES if page.startswith("docs/") and page not in linked] == []
