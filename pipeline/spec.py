r"""`dataset.yaml` as frozen, checked options.

>>> spec = parse_spec("name: a\nsource: {format: jsonl, path: a.jsonl}\nfeatures: {n: {kind: number}}\n")
>>> spec.splits
{'train': 80.0, 'validation': 10.0, 'test': 10.0}
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    model_validator,
)

from pipeline.columns import ColumnType
from pipeline.errors import did_you_mean
from pipeline.globs import escape, is_glob
from pipeline.keys import split_bounds
from pipeline.kinds import AnyFeature
from pipeline.kinds.category import Category
from pipeline.kinds.number import Number
from pipeline.options import Options
from pipeline.sources import AnySource
from pipeline.spec_errors import WrongValueError, explain
from pipeline.spec_yaml import SpecError, load_yaml


def _power_of_two(count: int) -> int:
    if count & (count - 1):
        raise ValueError(f"should be a power of two, such as {1 << count.bit_length() - 1}, got {count}")
    return count


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=100)]
Columns = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value, str | tuple[str, ...]),
]
Sources = Annotated[
    tuple[AnySource, ...],
    Field(min_length=1),
    BeforeValidator(
        lambda value: value if isinstance(value, list | tuple) else (value,), AnySource | tuple[AnySource, ...]
    ),
]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ShardCount = Annotated[int, Field(ge=1, le=1 << 16, strict=True), AfterValidator(_power_of_two)]
ShardCounts = Annotated[
    Annotated[ShardCount, Tag("of every split")] | Annotated[dict[Name, ShardCount], Tag("of each split")],
    Discriminator(lambda value: "of each split" if isinstance(value, dict) else "of every split"),
]
RESERVED = {
    "key": "every record's own key is stored under it",
    "self": "a serving model cannot take it",
    "train": "the analysis uses it",
}


class Spec(Options):
    """What a dataset is made of and what it holds."""

    name: Name
    """The dataset's name; the shards' names begin with it."""
    source: Sources
    """Where the rows come from: one source, or a list of them."""
    key: Columns | None = Field(default=None, min_length=1)
    """The column, or columns, that name a row for ever; where none is given, an image's path inside the source, or the
    digest of a row's content."""
    splits: dict[Name, Share] = {"train": 80.0, "validation": 10.0, "test": 10.0}
    """The splits and their shares, by hash of the key; `train` is the one that is learned from."""
    features: dict[Name, AnyFeature] = Field(min_length=1)
    """What a record holds, by name."""
    label: str | None = None
    """The feature that is to be predicted: a category or a number."""
    shards: ShardCounts | None = None
    """The number of shards of every split, or of each; by default a power of two that makes them about 128 MiB."""

    @model_validator(mode="after")
    def _check(self) -> "Spec":
        for name, why in RESERVED.items():
            if name in self.features:
                message = f"no feature can be named '{name}': {why}; call it otherwise and give `column: {name}`"
                raise WrongValueError(message, "features", name)
        self._check_splits()
        self._check_label()
        self._check_columns()
        return self

    def _check_splits(self) -> None:
        if not self.splits.get("train"):
            raise WrongValueError(f"needs a `train` with a share above 0, got {self.splits}", "splits")
        try:
            split_bounds(self.splits)
        except ValueError as error:
            raise WrongValueError(str(error), "splits") from None
        for split in self.shards if isinstance(self.shards, dict) else ():
            if split not in self.splits:
                near = did_you_mean(split, self.splits)
                raise WrongValueError(f"is none of the splits {', '.join(self.splits)}{near}", "shards", split)

    def _check_label(self) -> None:
        if self.label is None:
            return
        if self.label not in self.features:
            near = did_you_mean(self.label, self.features)
            raise WrongValueError(f"'{self.label}' is none of the features {', '.join(self.features)}{near}", "label")
        kind = self.features[self.label].kind
        if not isinstance(self.features[self.label], Category | Number):
            message = f"'{self.label}' is of kind {kind}: a label is a category or a number"
            raise WrongValueError(message, "label")

    def _check_columns(self) -> None:
        for column in self.columns():
            if column.startswith("@"):
                place = "key" if column in (self.key or ()) else "features"
                raise WrongValueError(f"the column '{column}' cannot be read: rename it, `@` begins our own", place)

    def columns(self) -> dict[str, ColumnType]:
        """The columns that are asked of the sources, with their types.

        Raises:
            WrongValueError: two features want one column as different types.
        """
        columns: dict[str, ColumnType] = {}
        for name, feature in self.features.items():
            column, wanted = feature.column or name, feature.column_type()
            if columns.setdefault(column, wanted) != wanted:
                message = (
                    f"column '{column}' is wanted as {columns[column]} and here as {wanted}: "
                    "a column is read as one type"
                )
                raise WrongValueError(message, "features", name)
        for column in self.key or ():
            columns.setdefault(column, ColumnType.CATEGORY)
        return columns

    def options(self) -> dict[str, dict[str, Any]]:
        """The features' options as plain mappings, as `transforms` takes them; `is_label` is added."""
        return {
            name: {**feature.model_dump(), "is_label": name == self.label} for name, feature in self.features.items()
        }


def parse_spec(text: str, where: str = "dataset.yaml") -> Spec:
    """Reads a spec from YAML text; `where` names it in messages.

    Raises:
        SpecError: the YAML or a value in it is wrong; each line says where, what and what to do.
    """
    document = load_yaml(text, where)
    try:
        return Spec.model_validate(document.value)
    except ValidationError as error:
        raise SpecError("\n".join(explain(error, document, Spec))) from None


def load_spec(path: str) -> Spec:
    """Reads a spec from a file; the sources' relative paths are taken from the spec's folder.

    Raises:
        SpecError: the file is missing, unreadable or wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SpecError(f"{path}: cannot be read: {reason}") from None
    spec = parse_spec(text, path)
    folder = Path(path).resolve().parent
    sources = [
        source.model_copy(update={"path": source.path if "://" in source.path else _beside(folder, source.path)})
        for source in spec.source
    ]
    return spec.model_copy(update={"source": tuple(sources)})


def _beside(folder: Path, path: str) -> str:
    """A path relative to the spec's folder, whose own name is no pattern where the path is one."""
    return str(Path(escape(str(folder)) if is_glob(path) else folder, path))
