"""From a source's block to keyed rows: every feature's column in its final type, and where the record goes.

Keyed rows are an Arrow table: `@group` int64, `@split` int64, `@hash` uint64 (the place in the order), `@sample`
uint64, `@key` binary, `@source` int16, `@chunk` int32, `@position` int64, and one column a feature, by the feature's
name: binary, float32 or int64, or lists of them. A picture is a reference (`pipeline.sources.image_refs`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.duplicates.decisions import move
from recordmill.pipeline.dataset.key_hash import Hashes, content_digest, hash_keys, join_key
from recordmill.pipeline.dataset.layout import Layout, strata_of
from recordmill.pipeline.sources.base import Block, Chunk
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.image_refs import parse
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.sources.typing.checks import Fault, Faults
from recordmill.pipeline.spec.split_by import SplitBy
from recordmill.transforms.contract.image_header import ImageError

FINAL_TYPES = {ColumnType.NUMBER: pa.float32(), ColumnType.INTEGER: pa.int64()}
Strata = Mapping[str, Sequence[int]]
"""For each class, the upper bounds of the splits' hash ranges, as `key_hash.split_bounds` gives them for all."""


@dataclass(frozen=True)
class RowFormat:
    """What the job needs to know of the spec to make rows: small and plain, since it is sent to the workers."""

    columns: Columns
    """The raw columns that are asked of the sources."""
    features: Mapping[str, str]
    """The column of each feature that has one."""
    key: Sequence[str] | None
    label: str | None
    classes: tuple[str, ...] | None
    """The label's classes, where the spec gives them."""
    fills: Mapping[str, Any] = field(default_factory=dict)
    """What stands in the place of what an optional feature lacks."""
    content_key: str | None = None
    """The column whose content is the key."""
    split_by: SplitBy | None = None
    source_splits: tuple[str | None, ...] = ()
    """The split that all rows of a source go to, where the spec says so."""
    strata: Strata | None = None
    """Where the split is by the classes of a feature: what a pass before this one found."""
    moved: str | None = None
    """The file of what goes to another split than that, since it has duplicates there (`duplicates.decisions`)."""
    units: bool = False
    """Whether rows get the column `@unit`, uint64: what decides their split, the hash of the key or of a group."""

    def final_type(self, feature: str) -> pa.DataType:
        """The Arrow type of a feature's column in keyed rows."""
        column = self.columns[self.features[feature]]
        value = FINAL_TYPES.get(column.type, pa.binary())
        return pa.list_(value) if column.many else value

    @property
    def source_key(self) -> Sequence[str] | None:
        """The key as a source is asked for it: columns, or None for the source's own."""
        return () if self.content_key else self.key


ReadPicture = Callable[[int, bytes], bytes]
"""Gives the bytes of a picture: of which source, and its reference. Raises OSError."""


def key_rows(
    block: Block, chunk: Chunk, form: RowFormat, layout: Layout, read_picture: ReadPicture | None = None
) -> tuple[pa.Table, list[Reject]]:
    """Gives a block's keyed rows, and all its rejects, those of the source and those found here."""
    table, rejects = block.table, list(block.rejects)
    keys, faults = _keys(table, form, chunk, read_picture)
    faults = _unknown_labels(table, form) | faults
    split_hashes, positions, samples = hash_keys([key or b"" for key in keys])
    units = _units(table, split_hashes, chunk, form, read_picture, faults)
    splits = _splits(table, units, chunk, form, layout)
    if form.moved is not None:
        splits = move(form.moved, units, splits)
    for row in np.flatnonzero(splits < 0).tolist():
        faults.setdefault(row, _unknown_split(form))
    columns = {
        "@group": layout.group_of(np.maximum(splits, 0), positions),
        "@split": splits,
        "@hash": positions,
        "@sample": samples,
        "@key": pa.array(keys, pa.binary()),
        "@source": np.full(len(keys), chunk.source, np.int16),
        "@chunk": np.full(len(keys), chunk.index, np.int32),
        "@position": table["@position"],
    }
    features = {name: _final(table[column], name, form) for name, column in form.features.items()}
    rows = pa.table({**columns, **features, **({"@unit": units} if form.units else {})})
    if faults:
        rejects += [_reject(chunk, table, keys, row, faults[row]) for row in sorted(faults)]
        good = np.ones(len(keys), bool)
        good[list(faults)] = False
        rows = rows.filter(pa.array(good))
    return rows, rejects


def _final(column: pa.ChunkedArray, name: str, form: RowFormat) -> pa.ChunkedArray:
    if column.null_count:
        fill = form.fills.get(name)
        if pa.types.is_list(column.type):
            column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
        elif fill != fill:  # NaN, which `fill_null` takes too, but only of the column's own type
            column = column.fill_null(float("nan"))
        else:
            column = column.cast(form.final_type(name)).fill_null(fill)
    return column.cast(form.final_type(name))


def _keys(
    table: pa.Table, form: RowFormat, chunk: Chunk, read_picture: ReadPicture | None
) -> tuple[list[bytes | None], Faults]:
    if form.content_key is not None:
        return _content_keys(table, form.content_key, chunk, form.columns[form.content_key].type, read_picture)
    if form.key is None:
        return table["@key"].to_pylist(), {}
    faults: Faults = {}
    columns = [
        _key_strings(table[name], form.columns[name].type, chunk, read_picture, faults, None) for name in form.key
    ]
    if len(columns) == 1:
        keys = columns[0].cast(pa.binary()).to_pylist()
    else:
        keys = [join_key(values) for values in zip(*(column.to_pylist() for column in columns), strict=True)]
    return [None if place in faults else key for place, key in enumerate(keys)] if faults else keys, faults


def _key_strings(
    column: pa.ChunkedArray,
    kind: ColumnType,
    chunk: Chunk,
    read_picture: ReadPicture | None,
    faults: Faults,
    column_at_fault: str | None,
) -> pa.ChunkedArray:
    """A column as parts of keys; an image that cannot be read is a fault."""
    if kind is not ColumnType.IMAGE:
        return column.cast(pa.string())
    names = list[str]()
    for row, reference in enumerate(column.to_pylist()):
        try:
            names.append(_picture_name(reference, chunk, read_picture))
        except ImageError as error:
            names.append("")
            faults.setdefault(row, Fault(error.reason, error.message, column_at_fault, error.path))
    return pa.chunked_array([pa.array(names, pa.string())])


def _picture_name(reference: bytes, chunk: Chunk, read_picture: ReadPicture | None) -> str:
    """A picture's path where it is a file of its own, else the digest of its bytes."""
    found = parse(reference)
    if found.data is None and found.length is None:
        return found.path
    data = found.data if read_picture is None or found.data is not None else read_picture(chunk.source, reference)
    return content_digest(data or b"").decode()


def _content_keys(
    table: pa.Table, content_key: str, chunk: Chunk, kind: ColumnType, read_picture: ReadPicture | None
) -> tuple[list[bytes | None], Faults]:
    column = table[content_key]
    if kind is not ColumnType.IMAGE or read_picture is None:
        return [content_digest(value) for value in column.cast(pa.string()).cast(pa.binary()).to_pylist()], {}
    keys, faults = list[bytes | None](), Faults()
    for row, reference in enumerate(column.to_pylist()):
        try:
            keys.append(content_digest(read_picture(chunk.source, reference)))
        except ImageError as error:
            keys.append(None)
            faults[row] = Fault(error.reason, error.message, content_key, error.path)
    return keys, faults


def _units(
    table: pa.Table,
    hashes: Hashes,
    chunk: Chunk,
    form: RowFormat,
    read_picture: ReadPicture | None,
    faults: Faults,
) -> Hashes:
    """What a hash decides the splits of: the keys' own split hashes, or those of the groups."""
    by = form.split_by
    if by is None or by.group is None:
        return hashes
    groups = _key_strings(table[by.group], form.columns[by.group].type, chunk, read_picture, faults, by.read_column)
    return hash_keys(groups.cast(pa.binary()).to_pylist())[0]


def _splits(table: pa.Table, units: Hashes, chunk: Chunk, form: RowFormat, layout: Layout) -> npt.NDArray[np.int64]:
    fixed = form.source_splits[chunk.source] if form.source_splits else None
    if fixed is not None:
        return np.full(table.num_rows, layout.splits.index(fixed), np.int64)
    by = form.split_by
    if by is None or by.group is not None:
        return layout.split_of(units)
    if by.stratify is not None:
        classes = table[form.features[by.stratify]].to_pylist()
        return layout.split_of(units) if form.strata is None else strata_of(units, classes, form.strata)
    return by.places(table[by.read_column].cast(pa.string()).to_pylist(), layout.splits)


def _unknown_labels(table: pa.Table, form: RowFormat) -> Faults:
    if form.label is None or form.classes is None:
        return {}
    column = table[form.features[form.label]].combine_chunks()
    classes = pa.array(form.classes, pa.string())
    many = pa.types.is_list(column.type)
    values = pc.list_flatten(column) if many else column
    unknown = np.flatnonzero(~pc.is_in(values, value_set=classes).to_numpy(zero_copy_only=False))
    rows = pc.list_parent_indices(column).to_numpy()[unknown] if many else unknown
    fault = Fault("unknown_label", "the label is none of the spec's `classes`", form.features[form.label])
    return dict.fromkeys(rows.tolist(), fault)


def _unknown_split(form: RowFormat) -> Fault:
    column = form.split_by.read_column if form.split_by else None
    return Fault("unknown_split", "the row's value names none of the spec's splits, or is no time", column)


def _reject(chunk: Chunk, table: pa.Table, keys: Sequence[bytes | None], row: int, fault: Fault) -> Reject:
    position, key = table["@position"][row].as_py(), keys[row]
    shown = None if key is None else key.decode("utf-8", "replace")
    return Reject(chunk.index, position, fault.reason, fault.message, shown, fault.column, fault.path)
