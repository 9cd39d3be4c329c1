"""From a source's block to keyed rows: every feature's column in its final type, and where the record goes.

Keyed rows are an Arrow table: `@group` int64, `@split` int64, `@hash` uint64 (the place in the order), `@sample`
uint64, `@key` binary, `@source` int16, `@chunk` int32, `@position` int64, and one column a feature, by the feature's
name: binary, float32 or int64, or lists of them. An image is a reference (`pipeline.sources.image_refs`).
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.row_schema import RowDecisions, RowSchema
from recordmill.pipeline.build.duplicates.decisions import move
from recordmill.pipeline.dataset.key_hash import Hashes, content_digest, hash_keys, join_key
from recordmill.pipeline.dataset.layout import Layout, strata_of
from recordmill.pipeline.sources.base import Block, Chunk
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.sources.image_refs import parse
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.typing.faults import Fault, Faults
from recordmill.transforms.contract.image_header import ImageError

ReadImage = Callable[[int, bytes], bytes]
"""Gives the bytes of an image by its source and its reference. Raises OSError or ImageError."""
UNDECIDED = RowDecisions()


def key_rows(
    block: Block,
    chunk: Chunk,
    schema: RowSchema,
    layout: Layout,
    read_image: ReadImage | None = None,
    decisions: RowDecisions = UNDECIDED,
    *,
    with_units: bool = False,
) -> tuple[pa.Table, list[Reject]]:
    """Gives a block's keyed rows, and all its rejects, those of the source and those found here.

    `with_units` adds the column `@unit`, uint64: the hash that decides a row's split, of its key or of its group.
    """
    keying = _Keying(block.table, chunk, schema, read_image)
    keys = keying.keys()
    faults = keying.unknown_labels() | keying.faults
    keying.faults = faults
    split_hashes, positions, samples = hash_keys([key or b"" for key in keys])
    units = keying.units(split_hashes)
    splits = keying.splits(units, layout, decisions)
    if decisions.moved is not None:
        splits = move(decisions.moved, units, splits)
    for row in np.flatnonzero(splits < 0).tolist():
        faults.setdefault(row, keying.unknown_split())
    columns = {
        "@group": layout.group_of(np.maximum(splits, 0), positions),
        "@split": splits,
        "@hash": positions,
        "@sample": samples,
        "@key": pa.array(keys, pa.binary()),
        "@source": np.full(len(keys), chunk.source, np.int16),
        "@chunk": np.full(len(keys), chunk.index, np.int32),
        "@position": block.table["@position"],
    }
    rows = pa.table({**columns, **keying.features(), **({"@unit": units} if with_units else {})})
    if not faults:
        return rows, list(block.rejects)
    good = np.ones(len(keys), bool)
    good[list(faults)] = False
    return rows.filter(pa.array(good)), [*block.rejects, *(keying.reject(row, keys[row]) for row in sorted(faults))]


class _Keying:
    """One block on its way to keyed rows, with its faults so far, by row."""

    def __init__(self, table: pa.Table, chunk: Chunk, schema: RowSchema, read_image: ReadImage | None) -> None:
        self._table, self._chunk, self._schema, self._read_image = table, chunk, schema, read_image
        self.faults: Faults = {}

    def keys(self) -> list[bytes | None]:
        """Gives each row's key; None for a row at fault."""
        schema = self._schema
        if schema.content_key is not None:
            return self._content_keys(schema.content_key)
        if schema.key is None:
            return self._table["@key"].to_pylist()
        columns = [self._strings(name, None) for name in schema.key]
        if len(columns) == 1:
            keys = columns[0].cast(pa.binary()).to_pylist()
        else:
            keys = [join_key(values) for values in zip(*(column.to_pylist() for column in columns), strict=True)]
        return [None if row in self.faults else key for row, key in enumerate(keys)] if self.faults else keys

    def _strings(self, name: str, column_at_fault: str | None) -> pa.ChunkedArray:
        """Gives a column as parts of keys; an image that cannot be read is a fault."""
        column = self._table[name]
        if self._schema.columns[name].type is not ColumnType.IMAGE:
            return column.cast(pa.string())
        names = list[str]()
        for row, reference in enumerate(column.to_pylist()):
            try:
                names.append(self._image_name(reference))
            except ImageError as error:
                names.append("")
                self.faults.setdefault(row, Fault(error.reason, error.message, column_at_fault, error.path))
        return pa.chunked_array([pa.array(names, pa.string())])

    def _image_name(self, reference: bytes) -> str:
        """Gives an image's path where it is a file of its own, else the digest of its bytes."""
        parsed = parse(reference)
        if parsed.data is None and parsed.length is None:
            return parsed.path
        if self._read_image is None or parsed.data is not None:
            return content_digest(parsed.data or b"").decode()
        return content_digest(self._read_image(self._chunk.source, reference)).decode()

    def _content_keys(self, name: str) -> list[bytes | None]:
        column = self._table[name]
        if self._schema.columns[name].type is not ColumnType.IMAGE or self._read_image is None:
            return [content_digest(value) for value in column.cast(pa.string()).cast(pa.binary()).to_pylist()]
        keys = list[bytes | None]()
        for row, reference in enumerate(column.to_pylist()):
            try:
                keys.append(content_digest(self._read_image(self._chunk.source, reference)))
            except ImageError as error:
                keys.append(None)
                self.faults[row] = Fault(error.reason, error.message, name, error.path)
        return keys

    def units(self, hashes: Hashes) -> Hashes:
        """Gives the hashes that decide the rows' splits: the keys' own, or those of the groups."""
        by = self._schema.split_by
        if by is None or by.group is None:
            return hashes
        return hash_keys(self._strings(by.group, by.read_column).cast(pa.binary()).to_pylist())[0]

    def splits(self, units: Hashes, layout: Layout, decisions: RowDecisions) -> npt.NDArray[np.int64]:
        """Gives each row's split by its position in the layout; below 0 for none."""
        schema, by = self._schema, self._schema.split_by
        fixed = schema.source_splits[self._chunk.source] if schema.source_splits else None
        if fixed is not None:
            return np.full(self._table.num_rows, layout.splits.index(fixed), np.int64)
        if by is None or by.group is not None:
            return layout.split_of(units)
        if by.stratify is None:
            return by.places(self._table[by.read_column].cast(pa.string()).to_pylist(), layout.splits)
        if decisions.strata is None:
            return layout.split_of(units)
        return strata_of(units, self._table[schema.features[by.stratify]].to_pylist(), decisions.strata)

    def unknown_labels(self) -> Faults:
        """Finds the rows whose label is not among the spec's classes."""
        schema = self._schema
        if schema.label is None or schema.classes is None:
            return {}
        column = self._table[schema.features[schema.label]].combine_chunks()
        many = pa.types.is_list(column.type)
        values = pc.list_flatten(column) if many else column
        known = pc.is_in(values, value_set=pa.array(schema.classes, pa.string()))
        unknown = np.flatnonzero(~known.to_numpy(zero_copy_only=False))
        rows = pc.list_parent_indices(column).to_numpy()[unknown] if many else unknown
        fault = Fault("unknown_label", "the label is none of the spec's `classes`", schema.features[schema.label])
        return dict.fromkeys(rows.tolist(), fault)

    def unknown_split(self) -> Fault:
        """Gives the fault of a row without a split."""
        by = self._schema.split_by
        message = "the row's value names none of the spec's splits, or is no time"
        return Fault("unknown_split", message, by.read_column if by else None)

    def features(self) -> dict[str, pa.ChunkedArray]:
        """Gives each feature's column in its final type, filled where a value is missing."""
        return {name: self._final(name, self._table[column]) for name, column in self._schema.features.items()}

    def _final(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = self._schema.final_type(name)
        if not column.null_count:
            return column.cast(kind)
        fill = self._schema.fills.get(name)
        if pa.types.is_list(column.type):
            return pc.if_else(column.is_valid(), column, pa.scalar([], column.type)).cast(kind)
        if fill != fill:  # NaN, which `fill_null` takes too, but only of the column's own type
            return column.fill_null(float("nan")).cast(kind)
        return column.cast(kind).fill_null(fill)

    def reject(self, row: int, key: bytes | None) -> Reject:
        """Makes the reject of a row at fault."""
        fault, position = self.faults[row], self._table["@position"][row].as_py()
        shown = None if key is None else key.decode("utf-8", "replace")
        return Reject(self._chunk.index, position, fault.reason, fault.message, shown, fault.column, fault.path)
