"""`docs/spec.md` against the code: every option with its default, every reason, every YAML block."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_core import to_jsonable_python

from pipeline.kinds.base import Feature
from pipeline.kinds.category import Category
from pipeline.kinds.image import Image
from pipeline.kinds.number import Number
from pipeline.kinds.raw import Raw
from pipeline.kinds.text import Text
from pipeline.options import Options
from pipeline.rejects import REASONS
from pipeline.sources.base import Source
from pipeline.sources.image_folder import ImageFolder
from pipeline.sources.jsonl import JsonLines
from pipeline.spec import Spec, parse_spec
from pipeline.spec_errors import _models

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
KINDS: list[type[Options]] = [Image, Text, Category, Number, Raw]
SOURCES: list[type[Options]] = [ImageFolder, JsonLines]
SECTIONS: dict[type[Options], str] = {
    Spec: "Top-level keys",
    Source: "Sources",
    ImageFolder: "image_folder",
    JsonLines: "jsonl",
    Feature: "Features",
    Image: "image",
    Text: "text",
    Category: "category",
    Number: "number",
    Raw: "raw",
}
"""Under which heading a model's own options stand; what it has of its base stands under the base's."""
SMALLEST = {
    "name": "part",
    "source": {"format": "jsonl", "path": "rows.jsonl"},
    "features": {"category": {"kind": "category"}},
}


def section(title: str) -> str:
    """What stands below a heading, up to the next one."""
    (text,) = re.findall(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a section's tables that begin with code, by that code: their other cells."""
    return {name: cells.split(" | ") for name, cells in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)}


def own_options(model: type[Options]) -> list[str]:
    base = next((base for base in (Source, Feature) if issubclass(model, base) and model is not base), None)
    return [name for name in model.model_fields if base is None or name not in base.model_fields]


def test_the_models_are_those_of_the_spec() -> None:
    fields = Spec.model_fields
    assert set(_models(fields["features"].annotation)) == set(KINDS)
    assert set(_models(fields["source"].annotation)) == set(SOURCES)


@pytest.mark.parametrize("model", SECTIONS, ids=lambda model: model.__name__)
def test_every_option_stands_there_with_its_default(model: type[Options]) -> None:
    table = rows(section(SECTIONS[model]))
    for name in own_options(model):
        field = model.model_fields[name]
        default, meaning = table[name]
        assert len(meaning) > 15, name
        if field.is_required():
            assert default == "needed", name
        elif field.default is None:
            assert default == "none", name
        else:
            assert yaml.safe_load(default.strip("`")) == to_jsonable_python(field.default), name


@pytest.mark.parametrize("model", [Spec, Source, Feature, *KINDS], ids=lambda model: model.__name__)
def test_no_option_stands_there_that_is_none(model: type[Options]) -> None:
    table = re.search(r"^\| (?:key|option) \| default .*?\n\n", section(SECTIONS[model]), re.MULTILINE | re.DOTALL)
    assert table is not None
    assert list(rows(table[0])) == own_options(model)


def test_every_value_of_a_choice_stands_there() -> None:
    for model in KINDS:
        table = rows(section(SECTIONS[model]))
        for name in own_options(model):
            schema: dict[str, Any] = model.model_json_schema()["properties"][name]
            for value in schema.get("enum", [schema["const"]] if "const" in schema else []):
                assert f"`{value}`" in table[name][1], f"{model.__name__}.{name}: {value}"


def test_every_kind_and_source_stands_in_the_lists() -> None:
    for title, tag, models in [("Features", "kind", KINDS), ("Sources", "format", SOURCES)]:
        _, names = rows(section(title))[tag]
        expected = [model.model_json_schema()["properties"][tag]["const"] for model in models]
        assert re.findall(r"`(\w+)`", names) == expected


def test_every_reason_stands_there() -> None:
    table = rows(section("Rejects"))
    assert {name: cells[0] for name, cells in table.items() if name in REASONS} == REASONS
    assert len(table) == len(REASONS) + 7, "seven are a reject's fields"


def blocks() -> list[Any]:
    """The YAML of the pages, by page and line."""
    found = []
    for page in ("docs/spec.md", "README.md"):
        text = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).exists() else ""
        for match in re.finditer(r"^ *```yaml\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start(1)) + 1
            found.append(pytest.param(textwrap.dedent(match[1]), id=f"{page}:{line}"))
    return found


def test_there_are_blocks() -> None:
    assert len(blocks()) >= 9


@pytest.mark.parametrize("block", blocks())
def test_every_block_is_a_spec_or_a_part_of_one(block: str) -> None:
    keys = yaml.safe_load(block)
    spec = parse_spec(block if "name" in keys else yaml.safe_dump(SMALLEST | keys, sort_keys=False))
    assert set(keys) <= spec.model_fields_set


def test_the_example_shows_every_top_level_key_and_kind() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", section("A complete example"), re.DOTALL)
    spec = parse_spec(block)
    assert set(Spec.model_fields) == spec.model_fields_set
    assert {type(feature) for feature in spec.features.values()} == set(KINDS)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(#(.*?)\)", PAGE))))
def test_links_lead_to_headings(link: str) -> None:
    assert link in [heading.lower().replace(" ", "-") for heading in re.findall(r"^##+ (.*)$", PAGE, re.MULTILINE)]
