"""Turns a source's block into keyed rows: every feature's column in its final type, and the record's place.

Keyed rows are an Arrow table: `@group` int64, `@split` int64, `@hash` uint64 (the place in the order), `@sample`
uint64, `@key` binary, `@source` int16, `@chunk` int32, `@position` int64, `@unit` uint64 (the hash that decides the
split: of the key, or of the group), and each feature's column, by its name: binary, float32 or int64, or lists of them.
An image is a reference (`pipeline.sources.images`).
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.build_context import PlannedBuild, RowSchema, Strata
from recordmill.pipeline.build.duplicates.decisions import Splits, leave_out, move, read_decisions
from recordmill.pipeline.build.images.image_files import ImageFiles
from recordmill.pipeline.build.worker.filter import RowFilter
from recordmill.pipeline.dataset.placement import (
    Hashes,
    Layout,
    content_digest,
    hash_key,
    hash_keys,
    join_key,
    strata_of,
)
from recordmill.pipeline.sources.faults import REASONS, Fault, Faults, Reject
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.source_reader import Block, Chunk
from recordmill.pipeline.sources.typing.arrays import interleaved, lengths, without
from recordmill.transforms.base.columns import ColumnType
from recordmill.transforms.images.image_header import ImageError

ReadImage = Callable[[int, bytes], bytes]
"""Returns the bytes of an image by its source and its reference. Raises OSError or ImageError."""
UNKNOWN_SPLIT = "the row's value names none of the spec's splits, or is no time (ISO 8601, Unix seconds since 1973)"
FROZEN_LABEL = "the label is not among the classes of the frozen analysis: `analysis: refresh` gives it an id"
LISTS = pa.list_(pa.string())


class KeyedBlock(NamedTuple):
    """The keyed rows of a block, and its other rows."""

    rows: pa.Table
    rejects: list[Reject]
    counts: Mapping[str, int]  # the first fields of `ChunkReport`


def keyed_blocks(planned: PlannedBuild, chunk: Chunk, images: Collection[str] | None = None) -> Iterator[KeyedBlock]:
    """Yields a chunk's blocks, without the rows that the user's filter or the decisions leave out.

    `images` are the features with images to be read, None for all; other features' references may be invalid.
    """
    schema, decisions, read_image = planned.schema, planned.decisions, ImageFiles.of(planned).read
    moved, dropped = (read_decisions(folder, planned, chunk.index) for folder in (decisions.moved, decisions.dropped))
    row_filter = RowFilter(planned, chunk)
    columns = schema.columns if images is None or row_filter.function else schema.columns_for(images)
    span, forgotten, most = planned.spans[chunk.source], planned.forgotten, int(planned.row_share * (1 << 64))
    for block in planned.readers[chunk.source].read(chunk, planned.files, columns, schema.source_key):
        rows, rejects = key_rows(block, chunk, schema, planned.layout, read_image, decisions.strata, moved, span)
        if planned.row_share < 1:  # chosen by their keys, and rejects, which may lack keys, by their place
            rows = rows.filter(pa.array(rows["@sample"].to_numpy() < np.uint64(most)))
            rejects = [each for each in rejects if hash_key(b"%d/%d" % (each.chunk, each.position)).sample < most]
        count = rows.num_rows + len(rejects)
        if forgotten.keys:
            stays = np.ones(rows.num_rows, bool)
            for row in forgotten.near(rows["@hash"].to_numpy()).tolist():
                stays[row] = not forgotten.holds(rows["@key"][row].as_py())
            rows = rows.filter(pa.array(stays))
            rejects = [each for each in rejects if not forgotten.holds((each.key or "").encode("utf-8", "replace"))]
        counts = {"read": count, "positions": block.positions, "forgotten": count - rows.num_rows - len(rejects)}
        rows, filtered = row_filter(rows, rejects)
        rejects += filtered
        if dropped is not None:
            rows, repeated, counts["duplicates"] = leave_out(dropped, rows)
            rejects += repeated
        yield KeyedBlock(rows, rejects, {**counts, "rejected": len(rejects)})
    row_filter.keep()


def key_rows(
    block: Block,
    chunk: Chunk,
    schema: RowSchema,
    layout: Layout,
    read_image: ReadImage | None = None,
    strata: Strata | None = None,
    moved: pa.Table | None = None,
    span: str | None = None,
) -> tuple[pa.Table, list[Reject]]:
    """Returns a chunk's block as keyed rows, and all its rejects: the source's, and those found here.

    `read_image` reads images for keys by content; `strata` are the bounds of classes (`RowDecisions`), `moved` the
    chunk's moves (`duplicates.decisions`).
    """
    keying = RowKeys(block.table, chunk, schema, read_image)
    keys = keying.keys()
    keying.faults = keying.unequal_lists() | keying.unknown_labels() | keying.faults
    split_hashes, positions, samples = hash_keys([key or b"" for key in keys])
    units = keying.units(split_hashes)
    splits = keying.splits(units, layout, strata)
    if moved is not None:
        splits = move(moved, units, splits)
    column = schema.split_by.read_column if schema.split_by else None
    unknown = Fault("unknown_split", UNKNOWN_SPLIT, column)
    faults = dict.fromkeys(np.flatnonzero(splits < 0).tolist(), unknown) | keying.faults
    columns = {
        "@group": layout.group_of(np.maximum(splits, 0), positions, span),
        "@split": splits,
        "@hash": positions,
        "@sample": samples,
        "@key": pa.array(keys, pa.binary()),
        "@source": np.full(len(keys), chunk.source, np.int16),
        "@chunk": np.full(len(keys), chunk.index, np.int32),
        "@position": block.table["@position"],
        "@unit": units,
    }
    columns |= {name: keying.feature(name) for name in schema.features}
    prefix, places = keying.prefix.decode(), block.table["@position"]
    rejects = [replace(each, key=prefix + each.key) if prefix and each.key else each for each in block.rejects]
    for row, fault in sorted(faults.items()):
        key = None if (given := keys[row]) is None else given.decode("utf-8", "replace")
        rejects.append(fault.reject(chunk.index, places[row].as_py(), key))
    return without(pa.table(columns), faults), rejects


class RowKeys:
    """One block on its way to keyed rows, with its faults so far, by row."""

    def __init__(self, table: pa.Table, chunk: Chunk, schema: RowSchema, read_image: ReadImage | None) -> None:
        self._table, self._chunk, self._schema, self._read_image = table, chunk, schema, read_image
        self.faults: Faults = {}
        is_default = schema.key is None and schema.content_key is None
        self.prefix = schema.key_prefixes[chunk.source] if is_default and schema.key_prefixes else b""
        """Begins each key of the source's own."""

    def keys(self) -> list[bytes | None]:
        """Returns each row's key; None for a row at fault."""
        schema = self._schema
        if schema.content_key is not None:
            column = schema.content_key
            keys = [content_digest(value) for value in self._values(column, column, self._image)]
        elif schema.key is None:
            return [self.prefix + key for key in self._table["@key"].to_pylist()]
        elif len(schema.key) == 1:
            keys = self._values(schema.key[0], None, self._image_name)
        else:
            columns = [self._values(name, None, self._image_name) for name in schema.key]
            keys = [join_key([part.decode() for part in parts]) for parts in zip(*columns, strict=True)]
        return [None if row in self.faults else key for row, key in enumerate(keys)]

    def _values(self, name: str, at_fault: str | None, of_image: Callable[[bytes], bytes]) -> list[bytes]:
        """Returns a column as parts of keys; an unreadable image is a fault of the column `at_fault`."""
        column = self._table[name]
        if self._schema.columns[name].type is not ColumnType.IMAGE:
            return column.cast(pa.string()).cast(pa.binary()).to_pylist()
        values = list[bytes]()
        for row, reference in enumerate(column.to_pylist()):
            try:
                values.append(of_image(reference))
            except ImageError as error:
                values.append(b"")
                self.faults.setdefault(row, Fault(error.reason, error.message, at_fault, error.path))
        return values

    def _image(self, reference: bytes) -> bytes:
        return b"" if self._read_image is None else self._read_image(self._chunk.source, reference)

    def _image_name(self, reference: bytes) -> bytes:
        """Returns the path of an image in its own file, else the digest of its bytes."""
        parsed = parse(reference)
        if parsed.data is None and parsed.length is None:
            return parsed.path.encode()
        return content_digest(parsed.data or self._image(reference))

    def units(self, hashes: Hashes) -> Hashes:
        """Returns the hashes that decide the rows' splits: those of the keys, or of the groups."""
        by = self._schema.split_by
        if by is None or by.group is None:
            return hashes
        return hash_keys(self._values(by.group, by.read_column, self._image_name))[0]

    def splits(self, units: Hashes, layout: Layout, strata: Strata | None) -> Splits:
        """Returns each row's split by its position in the layout; below 0 for an unknown one."""
        schema, by = self._schema, self._schema.split_by
        fixed = schema.source_splits[self._chunk.source] if schema.source_splits else None
        if fixed is not None:
            return np.full(self._table.num_rows, layout.splits.index(fixed), np.int64)
        if by is not None and by.group is None and by.stratify is None:
            return by.places(self._table[by.read_column].cast(pa.string()).to_pylist(), layout.splits)
        if by is None or by.stratify is None or strata is None:
            return layout.split_of(units)
        return strata_of(units, self._table[schema.features[by.stratify]].to_pylist(), strata)

    def unknown_labels(self) -> Faults:
        """Finds the rows with a label that is not a class of the spec."""
        schema = self._schema
        if schema.label is None or schema.classes is None:
            return {}
        column = self._table[schema.features[schema.label]].combine_chunks()
        many = pa.types.is_list(column.type)
        values = pc.list_flatten(column) if many else column
        known = pc.is_in(values, value_set=pa.array(schema.classes, pa.string()))
        unknown = np.flatnonzero(~known.to_numpy(zero_copy_only=False))
        rows = pc.list_parent_indices(column).to_numpy()[unknown] if many else unknown
        message = FROZEN_LABEL if schema.frozen_classes else REASONS["unknown_label"]
        return dict.fromkeys(rows.tolist(), Fault("unknown_label", message, schema.features[schema.label]))

    def unequal_lists(self) -> Faults:
        """Finds the rows with different lengths of lists that belong together, before they are cut."""
        faults: Faults = {}
        several = [list(fields.values()) for fields in self._schema.fields.values()]
        lists = [names for names in several if self._schema.columns[names[0]].many]
        joined = [(group, dict(zip(group, group, strict=True))) for group in lists]
        for group, columns in [*joined, *((group, self._schema.features) for group in self._schema.together)]:
            counts = np.stack([self._lengths(columns[name]) for name in group], 1)
            for row, fault in unequal(group, counts, columns).items():
                faults.setdefault(row, fault)
        return faults

    def _lengths(self, column: str) -> npt.NDArray[np.int64]:
        """Returns the number of a column's values in each row; 0 for a missing list."""
        values = self._table[column].combine_chunks()
        if self._schema.columns[column].type is ColumnType.OBJECTS:
            values = _each_object(values)
        return lengths(values) // self._schema.columns[column].multiple

    def feature(self, name: str) -> pa.ChunkedArray:
        """Returns a feature's column in its final type, with missing values filled."""
        column, kind = self._column(name), self._schema.final_type(name)
        if not column.null_count:
            return column.cast(kind)
        fill = self._schema.fills.get(name)
        if pa.types.is_list(column.type):
            return pc.if_else(column.is_valid(), column, pa.scalar([], column.type)).cast(kind)
        if fill != fill:  # NaN, which `fill_null` takes only in the column's own type
            return column.fill_null(float("nan")).cast(kind)
        return column.cast(kind).fill_null(fill)

    def _column(self, name: str) -> pa.ChunkedArray:
        """Returns a feature's column; several as lists, or as JSON objects, null where the first is null.

        Single numbers become a list, with NaN for missing ones; lists are joined value by value.
        """
        fields, is_list = self._schema.fields.get(name), self._schema.drawn.get(name)
        first = self._table[self._schema.features[name]]
        if fields is None or is_list is not None:
            column = first if fields is None else self._runs(fields)
            return pa.chunked_array([_each_object(column)]) if is_list else column
        if self._schema.columns[self._schema.features[name]].many:
            return pa.chunked_array([interleaved([self._table[each].combine_chunks() for each in fields.values()])])
        if self._schema.joins_numbers(name):
            numbers = np.stack([self._table[column].to_numpy() for column in fields.values()], 1)
            return pa.chunked_array([pa.FixedSizeListArray.from_arrays(numbers.ravel(), len(fields))])
        rows = zip(first, *map(self._json, fields.values()), strict=True)
        objects = []  # JSON, without nulls
        for value, *cells in rows:
            parts = (f'"{field}":{cell}' for field, cell in zip(fields, cells, strict=True) if cell is not None)
            objects.append("{" + ",".join(parts) + "}" if value.is_valid else None)
        return pa.chunked_array([objects], pa.string())

    def _runs(self, fields: Mapping[str, str]) -> pa.ChunkedArray:
        """Returns lists of equal lengths as lists of objects, JSON, null where one is null."""
        rows = zip(*(self._table[column].to_pylist() for column in fields.values()), strict=True)
        every = (None if None in row else zip(*row, strict=True) for row in rows)
        made = (row and json.dumps([dict(zip(fields, each, strict=True)) for each in row]) for row in every)
        return pa.chunked_array([[*made]], pa.string())

    def _json(self, column: str) -> list[str | None]:
        """Returns a column's values as JSON; texts become strings."""
        values = self._table[column].to_pylist()
        if self._schema.columns[column].type is ColumnType.OBJECTS:
            return values
        return [value if value is None else json.dumps(value, ensure_ascii=False) for value in values]


def unequal(group: Sequence[str], counts: npt.NDArray[np.int64], columns: Mapping[str, str]) -> Faults:
    """Finds rows with lists of different lengths, by their lengths of shape [rows, lists]."""
    faults: Faults = {}
    for row in np.flatnonzero((counts != counts[:, :1]).any(1)).tolist():
        differs = group[int(np.argmax(counts[row] != counts[row, 0]))]
        found = ", ".join(f"{name} has {count}" for name, count in zip(group, counts[row], strict=True))
        message = f"lists that belong together have different lengths: {found}"
        faults[row] = Fault("unequal_lists", message, columns[differs])
    return faults


def _each_object(rows: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Splits lists of objects, JSON, into lists of JSON, one object each."""
    return pa.array([row and [json.dumps([each]) for each in json.loads(row)] for row in rows.to_pylist()], LISTS)
