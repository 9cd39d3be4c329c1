r"""`dataset.yaml` as frozen, checked options.

>>> spec = parse_spec("name: a\nsource: {format: jsonl, path: a.jsonl}\nfeatures: {n: {kind: number}}\n")
>>> spec.splits
{'train': 80.0, 'validation': 10.0, 'test': 10.0}
"""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, StringConstraints, Tag

from recordmill.pipeline import VERSION, yaml_document
from recordmill.pipeline.dataset.paths import MOST_CHARACTERS, NAME, write_atomically
from recordmill.pipeline.errors import UserError, WrongValueError, did_you_mean
from recordmill.pipeline.json_values import check_types
from recordmill.pipeline.sources import options as sources
from recordmill.pipeline.sources.naming import FORMATS
from recordmill.pipeline.sources.options import PATHS, AnySource, Names, in_folder, is_template
from recordmill.pipeline.spec import split_by as rules
from recordmill.pipeline.spec.features import AnyFeature
from recordmill.pipeline.spec.gate import Gate, GateOrFalse
from recordmill.pipeline.yaml_document import Options, SpecError, explain, load_yaml, one_or_list
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import argument_name
from recordmill.transforms.base.feature import Together, check_together
from recordmill.transforms.texts.chat_spec import Chat
from recordmill.transforms.values.category_spec import ListedClasses, NamedClasses, check_not_crossed

Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$", max_length=MOST_CHARACTERS)]


def _power_of_two(count: int) -> int:
    if count & (count - 1):
        raise ValueError(f"should be a power of two, such as {1 << count.bit_length() - 1}, got {count}")
    return count


def _source(value: Any) -> Any:
    """Reads `module:function` as a source of format python. Raises: ValueError: a path instead."""
    if isinstance(value, str) and re.search(r"[/\\]|^[^:]+$", value):
        forms = [FORMATS[ending] for ending in PurePath(value.lower()).suffixes if ending in FORMATS]
        form = forms[0] if forms else "image_folder"
        whole = f"`recordmill init {shlex.quote(value)}` writes a whole spec"
        raise ValueError(f"a {'file' if forms else 'folder'} is written as {{format: {form}, path: {value}}}; {whole}")
    return {"format": "python", "rows": value} if isinstance(value, str) else value


OneSource = Annotated[AnySource, BeforeValidator(_source, AnySource | str)]
Sources = Annotated[
    tuple[OneSource, ...], Field(min_length=1), BeforeValidator(one_or_list, OneSource | tuple[OneSource, ...])
]
Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
Line = Annotated[str, StringConstraints(pattern=yaml_document.LINE, max_length=1000)]
Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MOST_SHARDS = 1 << 16  # of a split: a manifest of more opens slowly, and one of four times as many is too large to read
ShardCount = Annotated[int, Field(ge=1, le=MOST_SHARDS, strict=True), AfterValidator(_power_of_two)]
ShardCounts = Annotated[
    Annotated[ShardCount, Tag("of every split")] | Annotated[dict[Name, ShardCount], Tag("of each split")],
    Discriminator(lambda value: "of each split" if isinstance(value, dict) else "of every split"),
]


class About(Options):
    """A description for people: `README.md` and `croissant.json` of each version."""

    title: Line | None = None
    """The displayed name; by default the dataset's `name`."""
    description: Text | None = None
    """The content of the dataset: some sentences, Markdown allowed."""
    license: Line | None = None
    """An SPDX identifier such as `CC-BY-4.0`, or the URL of a licence. Without it the card says unknown."""
    citation: Text | None = None
    """The work to cite, as BibTeX."""
    homepage: Annotated[str, Field(pattern=yaml_document.WEB_PAGE, max_length=1000)] | None = None
    """The URL of a page about the dataset."""
    creators: tuple[Line, ...] = ()
    """The people or organizations behind it."""
    languages: tuple[Annotated[str, Field(pattern=yaml_document.LANGUAGE)], ...] = ()
    """The languages in the texts, such as `en` or `de-CH`."""
    tags: tuple[Line, ...] = ()
    """Search terms."""


class Rejects(Options):
    """The accepted shares of bad rows."""

    max_share: float | None = Field(default=0.01, ge=0, le=1)
    """The accepted share of rejects, without filtered rows, among all rows; a build with more publishes nothing. None:
    any."""
    max_duplicate_share: float | None = Field(default=None, ge=0, le=1)
    """The same for rows with another row's key (`duplicate_key`), not counted by other limits. None: `max_share`."""
    max_share_per_file: float | None = Field(default=None, ge=0, le=1)
    """The same for each file of 20 rows or more. None: any."""

    @property
    def duplicate_share(self) -> float | None:
        """The limit on rows with a repeated key; None: any."""
        return self.max_share if self.max_duplicate_share is None else self.max_duplicate_share


class ContentKey(Options):
    """A key made from content: the digest of a text, or of an image's bytes."""

    content: str = Field(min_length=1)
    """The column. Images are read once more for this."""


Key = Annotated[
    Annotated[ContentKey, Tag("a content")] | Annotated[Names, Field(min_length=1), Tag("columns")],
    Discriminator(lambda value: "a content" if isinstance(value, dict | ContentKey) else "columns"),
]
DuplicatesOrAction = Annotated[
    rules.Duplicates,
    BeforeValidator(
        lambda value: {"action": value} if isinstance(value, str) else value, rules.Action | rules.Duplicates
    ),
]
SCHEMA_FILE = "dataset.schema.json"  # the schema's file beside a spec; the relative name is valid on every machine
EDITOR_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
"""The first line of a spec: tells the YAML language server of an editor the schema."""
RESERVED = {
    "key": "records store their key under it",
    "self": "a serving model cannot take it",
    "train": "the analysis uses it",
}


class Spec(Options):
    """A dataset: sources, features, and rules."""

    name: Name
    """The dataset's name, and the prefix of its shards' names."""
    source: Sources
    """The origin of the rows: one source or a list."""
    key: Key | None = None
    """The columns that permanently identify a row, or `{content: column}`. By default an image's path inside the
    source, or the digest of a row's content."""
    splits: dict[Name, Share] = {"train": 80.0, "validation": 10.0, "test": 10.0}
    """The splits and their shares, by hash of the key; everything is learned from `train`."""
    split_by: rules.SplitBy | None = None
    """A rule that splits rows instead of the key's hash: by a column, a group, a time, or the classes of a feature."""
    features: dict[Name, AnyFeature] = Field(min_length=1)
    """The features by name."""
    label: str | None = None
    """The feature to predict."""
    together: Together = ()
    """Lists of equal lengths in each row, such as `[boxes, classes]`; or several such groups."""
    pack: rules.Packs = ()
    """Rows of several records, such as `{length: 4096, features: [ids, mask]}`; or a list, one for each length."""
    shards: ShardCounts | None = None
    """The number of shards per split, or a mapping by split; by default a power of two, for about 128 MiB a shard."""
    rejects: Rejects = Rejects()
    """The limits on bad rows."""
    gate: GateOrFalse = Gate()
    """The limits on changes from the live version; beyond them a person must approve. `false`: unlimited."""
    duplicates: DuplicatesOrAction = rules.Duplicates()
    """The treatment of equal rows: `keep`, `drop`, `same_split`, `fail`, or a mapping with that as `action`."""
    filter: Reference | None = None
    """Your function, `module:function`, of a row by feature: returns None, or the reason to leave the row out."""
    preprocessing: Reference | None = None
    """Your tf.Transform function, `module:function`; it extends or replaces the features' tensors."""
    analysis: Literal["frozen", "refresh"] | None = None
    """frozen: takes over the live version's transform graph; ids and normalized numbers keep their meaning. refresh:
    learns from all rows at every build. By default frozen if a path has placeholders, else refresh."""
    about: About = About()
    """The dataset in words, for each version's card and catalogue entry."""
    summaries: bool = True
    """Whether a version holds `summaries/`: every counted word and value of the rows."""
    _folder: str = pydantic.PrivateAttr(default=".")

    @property
    def folder(self) -> str:
        """The folder of the spec and the user's modules."""
        return self._folder

    @property
    def is_frozen(self) -> bool:
        """Whether builds take over the live version's transform graph; by default if there are spans."""
        return self.analysis == "frozen" or (self.analysis is None and self.has_spans)

    @property
    def packs(self) -> tuple[rules.Pack, ...]:
        """The packs, with those of single texts."""
        texts = ((name, getattr(feature, "pack", None)) for name, feature in self.features.items())
        return (*self.pack, *(rules.Pack(length=each, features=(name,), split=True) for name, each in texts if each))

    def resolved_sources(self) -> tuple[AnySource, ...]:
        """Returns the sources with paths to open: relative ones start at the spec's folder."""
        return tuple(in_folder(source, self._folder) for source in self.source)

    def resolved_features(self) -> dict[str, AnyFeature]:
        """Returns the features by name, with paths to open."""

        def resolve(path: str) -> str:
            return path if "://" in path else str(Path(self._folder, path))

        return {name: feature.with_paths(resolve) for name, feature in self.features.items()}

    def files(self) -> dict[str, str]:
        """Maps `feature.option` to the path to open: files of classes, models and vocabularies."""
        features = self.resolved_features().items()
        return {f"{name}.{option}": path for name, feature in features for option, path in feature.files().items()}

    def paths(self) -> list[str]:
        """Returns all paths and URLs in sources and features."""
        given = [getattr(source, name, None) for source in self.source for name in PATHS]
        listed = [path for source in self.source for path in getattr(source, "inputs", ())]
        return [*filter(None, given), *listed, *self.files().values()]

    @pydantic.model_validator(mode="after")
    def _check(self) -> "Spec":
        for name, why in RESERVED.items():
            if name in self.features:
                message = f"a feature cannot be named '{name}': {why}; rename it and give `column: {name}`"
                raise WrongValueError(message, "features", name)
        self._check_features()
        rules.check_splits(self.splits, self.shards, self.source, self.split_by)
        rules.check_split_by(self.split_by, self.splits, self.features)
        if self.label is not None:
            if self.label not in self.features:
                known = f"{', '.join(self.features)}{did_you_mean(self.label, self.features)}"
                raise WrongValueError(f"unknown feature '{self.label}', known: {known}", "label")
            if self.features[self.label].optional:
                remedy = "remove `optional`, and rows without it are rejects, or the label"
                message = f"'{self.label}' is the label, which is not optional: {remedy}"
                raise WrongValueError(message, "features", self.label)
            check_not_crossed(self.label, self.features)
        rules.check_duplicates(self.duplicates, self.split_by, self.source, self.features)
        if self.gate:
            self.gate.check(self.features, may_be_others=self.preprocessing is not None)
        rules.check_packs(self.packs, self.features)
        check_together(self.together, self.features)
        rules.check_spans(self.source, self.split_by, self.duplicates)
        self._check_source_columns()
        for column in self.columns():
            if column.startswith("@"):
                option = "key" if column in (self.key_columns or ()) else "features"
                raise WrongValueError(f"the column '{column}' cannot be read: rename it, `@` is reserved", option)
        return self

    def _check_source_columns(self) -> None:
        columns = self.columns()
        sources_ = [source for source in self.source if not isinstance(source, sources.Conll)]  # which lists all cells
        for name in (name for source in sources_ for name in source.columns if name not in columns):
            near = did_you_mean(name, columns)
            message = f"`columns` names the unread column '{name}'{near}; read are {', '.join(columns)}"
            raise WrongValueError(message, "source")
        for name in (name for name, feature in self.features.items() if getattr(feature, "shape", None)):
            kinds = sources.ImageFolder | sources.AnnotatedImages | sources.WebDataset
            of_files = [each for each in self.source if isinstance(each, kinds)]
            if self.features[name].kind == "image" and of_files:
                reads = f"`{of_files[0].format}` reads files"
                message = f"is of numbers, and {reads}: leave it out, or save [height, width, …]"
                raise WrongValueError(message, "features", name, "shape")

    def _check_features(self) -> None:
        for name, feature in self.features.items():
            try:
                feature.check(self.features)
                if name == self.label and isinstance(feature, NamedClasses):
                    feature.check_label()
            except WrongValueError as error:
                raise WrongValueError(str(error), "features", name, *error.path) from None
            if (argument := argument_name(name)) != name and argument in self.features:
                message = f"'{argument}' is the name of '{name}' in serving: rename one of them"
                raise WrongValueError(message, "features", argument)
            for part in (*feature.parts(), *feature.read_parts()):
                if f"{name}_{part}" in self.features:
                    message = f"'{name}_{part}' holds the {part} of '{name}': rename the feature"
                    raise WrongValueError(message, "features", f"{name}_{part}")

    @property
    def has_spans(self) -> bool:
        """Whether rows belong to spans: named by the files of a source, or added under a frozen analysis."""
        is_growing = self.analysis == "frozen" and rules.compares_all_rows(self.split_by, self.duplicates) is None
        return is_growing or self.has_templates

    @property
    def has_templates(self) -> bool:
        """Whether a source's files name spans."""
        return any(map(is_template, self.source))

    @property
    def key_columns(self) -> tuple[str, ...] | None:
        """The key's columns, if it has any."""
        return None if isinstance(self.key, ContentKey) else self.key

    @property
    def content_key(self) -> str | None:
        """The column with the content that makes the key, if any."""
        return self.key.content if isinstance(self.key, ContentKey) else None

    def columns(self) -> dict[str, Column]:
        """Returns the needed columns, optional if all their features are. Raises: WrongValueError: two types of one."""
        columns: dict[str, Column] = {}
        for name, feature in self.features.items():
            if (first := feature.raw_column()) is None:
                continue
            for column, wanted in feature.joined_columns(name).values() or [(feature.first_column(name), first)]:
                known = columns.setdefault(column, wanted)
                if replace(known, optional=wanted.optional, expected=wanted.expected) != wanted:
                    message = f"column '{column}' is wanted as {known} and here as {wanted}: a column has one type"
                    raise WrongValueError(message, "features", name)
                optional, expected = known.optional and wanted.optional, known.expected or wanted.expected
                columns[column] = replace(known, optional=optional, expected=expected)
        by = self.split_by.read_column if self.split_by else None
        for column in filter(None, [*(self.key_columns or ()), by, self.content_key]):
            known = columns.setdefault(column, Column(ColumnType.CATEGORY))
            if known.is_list:
                raise WrongValueError(f"column '{column}' is a {known}: a key or a split is one value", "features")
            columns[column] = replace(known, optional=False)
        if by and columns[by].type is ColumnType.IMAGE and not (self.split_by and self.split_by.group):
            raise WrongValueError(f"column '{by}' is an image: give a column of names or times", "split_by")
        return columns


def parse_spec(text: str, where: str = "dataset.yaml") -> Spec:
    """Reads YAML text; `where` names it in messages. Raises: SpecError: each line says where, what and what to do."""
    check_types({"text": text}, {"text": str})
    document = load_yaml(text, where)
    try:
        return Spec.model_validate(document.value)
    except pydantic.ValidationError as error:
        raise SpecError("\n".join(explain(error, document, Spec))) from None


def load_spec(path: str | Path, text: str | None = None) -> Spec:
    """Reads a spec's file, or its `text`. Relative paths start at its folder but stay so: it affects no build key.

    Raises: SpecError: the file is missing, unreadable or wrong.
    """
    check_types(locals(), load_spec.__annotations__)
    path = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8") if text is None else text
        spec = parse_spec(text, path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        data = shlex.quote(path) if Path(path).exists() else f"DATA -o {shlex.quote(path)}"
        raise SpecError(f"{path}: cannot be read: {reason}; `recordmill init {data}` writes a spec") from None
    except SpecError as error:
        is_data = FORMATS.keys() & PurePath(path.lower()).suffixes
        remedy = f"; `recordmill init {shlex.quote(path)}` writes a spec" if is_data else ""
        raise SpecError(f"{error}{remedy}") from None
    spec._folder = str(Path(path).resolve().parent)
    named = {name: each for name, each in spec.resolved_features().items() if isinstance(each, ListedClasses)}
    for name, feature in named.items():
        try:
            named[name] = feature.with_classes()
        except ValueError as error:
            raise SpecError(f"{path}: features.{name}.classes_file: {error}") from None
    chats = {name: each.with_template(spec._folder) for name, each in spec.features.items() if isinstance(each, Chat)}
    return spec.model_copy(update={"features": spec.features | named | chats})


def schema_text() -> str:
    """Returns the JSON Schema that editors use to complete, explain and check a spec; it ends in a newline.

    A refused spec is wrong; an accepted one may still be, because only a build checks rules across several options.
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": f"Recordmill {VERSION}"}
    return json.dumps({**head, **Spec.model_json_schema(), "title": "dataset.yaml of Recordmill"}, indent=2) + "\n"


def write_schema(file: Path) -> None:
    """Writes or replaces the schema. Raises: UserError: the file cannot be written."""
    try:
        write_atomically(file, schema_text().encode())
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
