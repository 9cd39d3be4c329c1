"""From a source's block to keyed rows: every feature's column in its final type, and where the record goes.

Keyed rows are an Arrow table: `@group` int64, `@split` int64, `@hash` uint64 (the place in the order), `@sample`
uint64, `@key` binary, `@source` int16, `@chunk` int32, `@position` int64, and one column a feature, by the feature's
name: binary, float32 or int64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import Columns, ColumnType
from pipeline.keys import join_key
from pipeline.layout import Layout, hash_keys
from pipeline.rejects import Reject
from pipeline.sources.base import Block, Chunk

FINAL_TYPES = {ColumnType.NUMBER: pa.float32(), ColumnType.INTEGER: pa.int64()}


@dataclass(frozen=True)
class RowFormat:
    """What the job needs to know of the spec to make rows: no pydantic, so that it is small to send."""

    columns: Columns
    """The raw columns that are asked of the sources."""
    features: Mapping[str, str]
    """The column of each feature."""
    key: Sequence[str] | None
    label: str | None
    classes: tuple[str, ...] | None
    """The label's classes, where the spec gives them."""

    def final_type(self, feature: str) -> pa.DataType:
        """The Arrow type of a feature's column in keyed rows."""
        return FINAL_TYPES.get(self.columns[self.features[feature]], pa.binary())


def key_rows(block: Block, chunk: Chunk, form: RowFormat, layout: Layout) -> tuple[pa.Table, list[Reject]]:
    """Gives a block's keyed rows, and all its rejects, those of the source and those found here."""
    table, keys, unknown = _drop_unknown_labels(block.table, _keys(block.table, form), chunk, form)
    split_hashes, positions, samples = hash_keys(keys)
    splits = layout.split_of(split_hashes)
    columns = {
        "@group": layout.group_of(splits, positions),
        "@split": splits,
        "@hash": positions,
        "@sample": samples,
        "@key": pa.array(keys, pa.binary()),
        "@source": np.full(len(keys), chunk.source, np.int16),
        "@chunk": np.full(len(keys), chunk.index, np.int32),
        "@position": table["@position"],
    }
    features = {name: table[column].cast(form.final_type(name)) for name, column in form.features.items()}
    return pa.table({**columns, **features}), block.rejects + unknown


def _keys(table: pa.Table, form: RowFormat) -> list[bytes]:
    if form.key is None:
        keys: list[bytes] = table["@key"].to_pylist()
        return keys
    columns = [table[name].cast(pa.string()) for name in form.key]
    if len(columns) == 1:
        return columns[0].cast(pa.binary()).to_pylist()
    return [join_key(values) for values in zip(*(column.to_pylist() for column in columns), strict=True)]


def _drop_unknown_labels(
    table: pa.Table, keys: list[bytes], chunk: Chunk, form: RowFormat
) -> tuple[pa.Table, list[bytes], list[Reject]]:
    if form.label is None or form.classes is None:
        return table, keys, []
    column = form.features[form.label]
    known = pc.is_in(table[column], value_set=pa.array(form.classes, pa.string()))
    kept = known.to_pylist()
    classes = f"is none of the {len(form.classes)} classes of the spec"
    rejects = [
        Reject(
            chunk.index, at, "unknown_label", f"label {label[:100]!r} {classes}", key.decode("utf-8", "replace"), column
        )
        for at, label, key, good in zip(
            table["@position"].to_pylist(), table[column].to_pylist(), keys, kept, strict=True
        )
        if not good
    ]
    return table.filter(known), list(compress(keys, kept)), rejects
