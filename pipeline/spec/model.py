r"""`dataset.yaml` as frozen, checked options.

>>> spec = parse_spec("name: a\nsource: {format: jsonl, path: a.jsonl}\nfeatures: {n: {kind: number}}\n")
>>> spec.splits
{'train': 80.0, 'validation': 10.0, 'test': 10.0}
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    StringConstraints,
    Tag,
    ValidationError,
    model_validator,
)

from recordmill.pipeline.dataset.paths import MOST_CHARACTERS, NAME
from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.globs import in_folder, is_template
from recordmill.pipeline.sources.options import PATHS, AnySource
from recordmill.pipeline.spec.about import About
from recordmill.pipeline.spec.features import AnyFeature
from recordmill.pipeline.spec.features.category import NamedClasses, check_not_crossed
from recordmill.pipeline.spec.features.feature import Together, check_together
from recordmill.pipeline.spec.features.text import check_packed
from recordmill.pipeline.spec.gate import Gate, GateOrFalse
from recordmill.pipeline.spec.messages import explain
from recordmill.pipeline.spec.split_by import (
    Action,
    Duplicates,
    Names,
    SplitBy,
    check_duplicates,
    check_spans,
    check_split_by,
    check_splits,
    compares_all_rows,
)
from recordmill.pipeline.yaml_document import Options, SpecError, load_yaml
from recordmill.transforms.contract.kinds.base import FeatureOptions, argument_name


def _power_of_two(count: int) -> int:
    if count & (count - 1):
        raise ValueError(f"should be a power of two, such as {1 << count.bit_length() - 1}, got {count}")
    return count


Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$", max_length=MOST_CHARACTERS)]


def _source(value: Any) -> Any:
    """Reads `module:function` as a source of format python."""
    return {"format": "python", "rows": value} if isinstance(value, str) else value


OneSource = Annotated[AnySource, BeforeValidator(_source, AnySource | str)]
Sources = Annotated[
    tuple[OneSource, ...],
    Field(min_length=1),
    BeforeValidator(
        lambda value: value if isinstance(value, list | tuple) else (value,), OneSource | tuple[OneSource, ...]
    ),
]
Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MOST_SHARDS = 1 << 16  # of a split: a manifest of more is slow to open, and too large to be read at four times as many
ShardCount = Annotated[int, Field(ge=1, le=MOST_SHARDS, strict=True), AfterValidator(_power_of_two)]
ShardCounts = Annotated[
    Annotated[ShardCount, Tag("of every split")] | Annotated[dict[Name, ShardCount], Tag("of each split")],
    Discriminator(lambda value: "of each split" if isinstance(value, dict) else "of every split"),
]


class Rejects(Options):
    """The shares of bad rows that a build accepts."""

    max_share: float | None = Field(default=0.01, ge=0, le=1)
    """The share of all rows, 0 to 1, that may be rejected; a build with more ends, and publishes nothing. None: any."""
    max_duplicate_share: float | None = Field(default=None, ge=0, le=1)
    """The same for rows that repeat another's key (`duplicate_key`), which no other limit counts. None: `max_share`."""
    max_share_per_file: float | None = Field(default=None, ge=0, le=1)
    """The same for each file of 20 rows or more. None: any."""

    @property
    def duplicate_share(self) -> float | None:
        """The limit on rows that repeat a key; None for any."""
        return self.max_share if self.max_duplicate_share is None else self.max_duplicate_share


class ContentKey(Options):
    """A key that is the digest of a column's content: of a text, or of an image's bytes."""

    content: str = Field(min_length=1)
    """The column. Images are read once more for it."""


Key = Annotated[
    Annotated[ContentKey, Tag("a content")] | Annotated[Names, Field(min_length=1), Tag("columns")],
    Discriminator(lambda value: "a content" if isinstance(value, dict | ContentKey) else "columns"),
]
DuplicatesOrAction = Annotated[
    Duplicates,
    BeforeValidator(lambda value: {"action": value} if isinstance(value, str) else value, Action | Duplicates),
]
RESERVED = {
    "key": "every record's own key is stored under it",
    "self": "a serving model cannot take it",
    "train": "the analysis uses it",
}


class Spec(Options):
    """A dataset's sources and features, and all that shapes it."""

    name: Name
    """The dataset's name; the shards' names begin with it."""
    source: Sources
    """The origin of the rows: one source, or a list of them."""
    key: Key | None = None
    """The column, or columns, that name a row for ever, or `{content: column}`. By default an image's path inside the
    source, or the digest of a row's content."""
    splits: dict[Name, Share] = {"train": 80.0, "validation": 10.0, "test": 10.0}
    """The splits and their shares, by hash of the key; `train` is the one that is learned from."""
    split_by: SplitBy | None = None
    """The rule that splits rows instead of the key's hash: a column, a group, a time, or the classes of a feature."""
    features: dict[Name, AnyFeature] = Field(min_length=1)
    """The features of a record, by name."""
    label: str | None = None
    """The feature that is to be predicted."""
    together: Together = ()
    """Features that are lists of equal lengths in each row, such as `[boxes, classes]`; or a list of such lists."""
    shards: ShardCounts | None = None
    """The number of shards of every split, or of each; by default a power of two that makes them about 128 MiB."""

    rejects: Rejects = Rejects()
    """The limits on bad rows."""
    gate: GateOrFalse = Gate()
    """The limits on how far a new version may be from the live one before a person must approve it; `false`: none."""
    duplicates: DuplicatesOrAction = Duplicates()
    """The treatment of equal rows: `keep`, `drop`, `same_split`, `fail`, or a mapping with that as `action`."""
    preprocessing: Reference | None = None
    """A tf.Transform function of yours, `module:function`, that extends or replaces what the features give."""
    analysis: Literal["frozen", "refresh"] | None = None
    """The origin of what is learned of the rows. frozen: the live version's transform graph, so that every id and every
    normalized number means what it meant. refresh: all rows, at every build. By default frozen where a path has
    placeholders, else refresh."""
    about: About = About()
    """The dataset in words, for the card and the catalogue entry of each version."""
    summaries: bool = True
    """Whether a version holds `summaries/`: every counted word and value of its rows. False leaves the folder out."""
    _folder: str = PrivateAttr(default=".")

    @property
    def folder(self) -> str:
        """The folder of the spec, where the user's modules lie."""
        return self._folder

    @property
    def is_frozen(self) -> bool:
        """Whether a build takes over the live version's transform graph: as the spec says, else where it has spans."""
        return self.analysis == "frozen" or (self.analysis is None and self.has_spans)

    def resolved_sources(self) -> tuple[AnySource, ...]:
        """Returns the sources with paths that can be opened: relative ones are taken from the spec's folder."""
        return tuple(in_folder(source, self._folder) for source in self.source)

    def resolved_features(self) -> dict[str, AnyFeature]:
        """Returns the features, by name, with paths of their files that can be opened."""

        def resolve(path: str) -> str:
            return path if "://" in path else str(Path(self._folder, path))

        return {name: feature.with_paths(resolve) for name, feature in self.features.items()}

    def files(self) -> dict[str, str]:
        """Returns the paths to open of features' files, models and vocabularies, by feature and option."""
        features = self.resolved_features().items()
        return {f"{name}.{option}": path for name, feature in features for option, path in feature.files().items()}

    def paths(self) -> list[str]:
        """Returns the paths and URLs that sources and features name."""
        given = [getattr(source, name, None) for source in self.source for name in PATHS]
        listed = [path for source in self.source for path in getattr(source, "inputs", ())]
        return [*filter(None, given), *listed, *self.files().values()]

    @model_validator(mode="after")
    def _check(self) -> "Spec":
        for name, why in RESERVED.items():
            if name in self.features:
                message = f"no feature can be named '{name}': {why}; call it otherwise and give `column: {name}`"
                raise WrongValueError(message, "features", name)
        self._check_features()
        check_splits(self.splits, self.shards, self.source, self.split_by)
        check_split_by(self.split_by, self.splits, self.features)
        self._check_label()
        check_duplicates(self.duplicates, self.split_by, self.source, self.features)
        if self.gate:
            self.gate.check(self.features, may_be_others=self.preprocessing is not None)
        check_packed(self.features, self.label, self.preprocessing)
        check_together(self.together, self.features)
        check_spans(self.source, self.split_by, self.duplicates)
        self._check_source_columns()
        for column in self.columns():
            if column.startswith("@"):
                option = "key" if column in (self.key_columns or ()) else "features"
                raise WrongValueError(f"the column '{column}' cannot be read: rename it, `@` begins our own", option)
        return self

    def _check_source_columns(self) -> None:
        columns = self.columns()
        for name in (name for source in self.source for name in source.columns if name not in columns):
            near = did_you_mean(name, columns)
            message = f"`columns` names '{name}', which nothing reads{near}; read are {', '.join(columns)}"
            raise WrongValueError(message, "source")

    def _check_features(self) -> None:
        for name, feature in self.features.items():
            try:
                feature.check(self.features)
                if name == self.label and isinstance(feature, NamedClasses):
                    feature.check_label()
            except WrongValueError as error:
                raise WrongValueError(str(error), "features", name, *error.path) from None
            if (argument := argument_name(name)) != name and argument in self.features:
                message = f"'{argument}' is what serving takes '{name}' under: call one of them otherwise"
                raise WrongValueError(message, "features", argument)
            for part in (*feature.parts(), *feature.read_parts()):
                if f"{name}_{part}" in self.features:
                    message = f"'{name}_{part}' is what '{name}' stores its {part} under: call the feature otherwise"
                    raise WrongValueError(message, "features", f"{name}_{part}")

    def _check_label(self) -> None:
        if self.label is None:
            return
        if self.label not in self.features:
            near = did_you_mean(self.label, self.features)
            raise WrongValueError(f"there is no feature '{self.label}' among {', '.join(self.features)}{near}", "label")
        if self.features[self.label].optional:
            raise WrongValueError(f"'{self.label}' is the label: it cannot be optional", "features", self.label)
        check_not_crossed(self.label, self.features)

    @property
    def has_spans(self) -> bool:
        """Whether rows belong to spans: the files of a source name them, or a frozen analysis lets files be added."""
        is_growing = self.analysis == "frozen" and compares_all_rows(self.split_by, self.duplicates) is None
        return is_growing or self.has_templates

    @property
    def has_templates(self) -> bool:
        """Whether the files of a source name spans."""
        return any(map(is_template, self.source))

    @property
    def key_columns(self) -> tuple[str, ...] | None:
        """The columns that make the key, if columns make it."""
        return None if isinstance(self.key, ContentKey) else self.key

    @property
    def content_key(self) -> str | None:
        """The column whose content is the key, if any."""
        return self.key.content if isinstance(self.key, ContentKey) else None

    def columns(self) -> dict[str, Column]:
        """Returns the columns that the sources deliver, with their types; optional where all features that read it are.

        Raises: WrongValueError: two features want one column as different types.
        """
        columns: dict[str, Column] = {}
        for name, feature in self.features.items():
            if (wanted := feature.raw_column()) is None:
                continue
            column = feature.column or name
            known = columns.setdefault(column, wanted)
            if replace(known, optional=wanted.optional) != wanted:
                message = f"column '{column}' is wanted as {known} and here as {wanted}: a column is read as one type"
                raise WrongValueError(message, "features", name)
            columns[column] = replace(known, optional=known.optional and wanted.optional)
        by = self.split_by.read_column if self.split_by else None
        for column in filter(None, [*(self.key_columns or ()), by, self.content_key]):
            known = columns.setdefault(column, Column(ColumnType.CATEGORY))
            if known.is_list:
                raise WrongValueError(f"column '{column}' is a {known}: a key or a split is one value", "features")
            columns[column] = replace(known, optional=False)
        if by and columns[by].type is ColumnType.IMAGE and not (self.split_by and self.split_by.group):
            raise WrongValueError(f"column '{by}' is an image: it names no split, and no time", "split_by")
        return columns

    def options(self) -> dict[str, FeatureOptions]:
        """Returns the features' options as `transforms` takes them, by name."""
        features = self.resolved_features().items()
        return {name: feature.options(is_label=name == self.label) for name, feature in features}


def parse_spec(text: str, where: str = "dataset.yaml") -> Spec:
    """Reads a spec from YAML text; `where` names it in messages.

    Raises: SpecError: the YAML or a value in it is wrong; each line says where, what and what to do.
    """
    document = load_yaml(text, where)
    try:
        return Spec.model_validate(document.value)
    except ValidationError as error:
        raise SpecError("\n".join(explain(error, document, Spec))) from None


def load_spec(path: str) -> Spec:
    """Reads a spec from a file, whose folder its relative paths are taken from.

    The paths stay as they are given, so that no key of a build knows where the folder is.

    Raises: SpecError: the file is missing, unreadable or wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SpecError(f"{path}: cannot be read: {reason}") from None
    spec = parse_spec(text, path)
    spec._folder = str(Path(path).resolve().parent)
    named = {name: each for name, each in spec.resolved_features().items() if isinstance(each, NamedClasses)}
    for name, feature in named.items():
        try:
            named[name] = feature.with_classes()
        except ValueError as error:
            raise SpecError(f"{path}: features.{name}.classes_file: {error}") from None
    return spec.model_copy(update={"features": spec.features | named})
