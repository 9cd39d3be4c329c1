"""From a source's block to keyed rows: every feature's column in its final type, and where the record goes.

Keyed rows are an Arrow table: `@group` int64, `@split` int64, `@hash` uint64 (the place in the order), `@sample`
uint64, `@key` binary, `@source` int16, `@chunk` int32, `@position` int64, and one column a feature, by the feature's
name: binary, float32 or int64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    table, unknown = _drop_unknown_labels(block.table, chunk, form)
    keys = _keys(table, form)
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
    if len(form.key) == 1:
        return table[form.key[0]].cast(pa.binary()).to_pylist()
    return [
        join_key(values)
        for values in zip(*(table[name].cast(pa.string()).to_pylist() for name in form.key), strict=True)
    ]


def _drop_unknown_labels(table: pa.Table, chunk: Chunk, form: RowFormat) -> tuple[pa.Table, list[Reject]]:
    if form.label is None or form.classes is None:
        return table, []
    column = form.features[form.label]
    known = pc.is_in(table[column], value_set=pa.array(form.classes, pa.string()))
    unknown = table.filter(pc.invert(known))
    rejects = [
        Reject(
            chunk.index,
            position,
            "unknown_label",
            f"label {name[:100]!r} is none of the {len(form.classes)} classes of the spec",
            column=column,
        )
        for position, name in zip(unknown["@position"].to_pylist(), unknown[column].to_pylist(), strict=True)
    ]
    return table.filter(known), rejects
