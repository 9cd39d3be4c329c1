"""The schema of keyed rows, and what earlier passes decided about rows: small and plain, since workers get both."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.spec.split_by import SplitBy

ARROW_TYPES = {ColumnType.NUMBER: pa.float32(), ColumnType.INTEGER: pa.int64()}
Strata = Mapping[str, Sequence[int]]
"""For each class, the upper bounds of the splits' hash ranges, as `key_hash.split_bounds` gives them for all."""


@dataclass(frozen=True)
class RowSchema:
    """The columns of rows: which are read, which feature takes which, and which decide a row's key and split."""

    columns: Columns
    """The raw columns that are asked of the sources."""
    features: Mapping[str, str]
    """The column of each feature that has one."""
    key: Sequence[str] | None
    label: str | None
    classes: tuple[str, ...] | None
    """The label's classes, where the spec gives them, or a frozen analysis."""
    fills: Mapping[str, Any] = field(default_factory=dict)
    """The value that stands in for a missing one, by optional feature."""
    content_key: str | None = None
    """The column whose content is the key."""
    split_by: SplitBy | None = None
    together: tuple[tuple[str, ...], ...] = ()
    """Groups of features whose lists have equal lengths in each row."""
    frozen_classes: bool = False
    """Whether a frozen analysis gives the label's classes."""
    source_splits: tuple[str | None, ...] = ()
    """The split that all rows of a source go to, where the spec says so."""
    key_prefixes: tuple[bytes, ...] = ()
    """The beginning of the default keys of each source's rows, where sources belong to spans."""

    def final_type(self, feature: str) -> pa.DataType:
        """Returns the Arrow type of a feature's column in keyed rows."""
        column = self.columns[self.features[feature]]
        value = ARROW_TYPES.get(column.type, pa.binary())
        return pa.list_(value) if column.many else value

    def columns_for(self, images: Collection[str]) -> Columns:
        """Returns the columns that are asked of the sources where the bytes of these image features alone matter."""
        by = self.split_by
        needed = {self.features[name] for name in images} | {
            self.content_key,
            by.group if by else None,
            *(self.key or ()),
        }
        return {
            name: replace(column, presence=column.type is ColumnType.IMAGE and name not in needed)
            for name, column in self.columns.items()
        }

    @property
    def keys_may_cross(self) -> bool:
        """Whether one key may be in several splits: the hash of the key gives one."""
        return self.split_by is not None or any(self.source_splits)

    @property
    def source_key(self) -> Sequence[str] | None:
        """The key as a source takes it: columns, or None for the source's own."""
        return () if self.content_key else self.key


@dataclass(frozen=True)
class RowDecisions:
    """Decisions about rows by the jobs before the look; all None where none ran."""

    strata: Strata | None = None
    """The bounds of each class, where the split is by the classes of a feature."""
    moved: str | None = None
    """The folder of units that go to another split, where their duplicates are: a file for each chunk."""
    dropped: str | None = None
    """The folder of duplicates that are left out: a file for each chunk."""
