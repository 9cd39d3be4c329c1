"""Tables with several rows of one thing, such as a row a box: joined by a column, once, by the plan.

    source: {format: csv, path: boxes.csv, group: filename}

A group is a row, in the order of its first row in the tables. A column asked as a list holds the values of all the
group's rows, in their order; a row without any number of them, such as `0.jpg,,,,,none`, adds nothing. Other columns
must be equal in a group. A bad row of the table makes its group a reject; one without a known group is a reject by
itself.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.dataset.placement import content_digest, join_key
from recordmill.pipeline.sources import source_reader
from recordmill.pipeline.sources.batches import even_parts, pack
from recordmill.pipeline.sources.faults import Fault, Faults, Ints, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.options import RowsOptions
from recordmill.pipeline.sources.paths import planning
from recordmill.pipeline.sources.source_reader import Block, Chunk, Key, Plan, SourceReader, TypedRows, unpacked
from recordmill.pipeline.sources.typing import arrays
from recordmill.pipeline.sources.typing.checks import key_part
from recordmill.transforms.base.bounds import OBJECTS
from recordmill.transforms.base.columns import Column, Columns, ColumnType

ID, IS_FILLED = "@id", "@filled"
Place = tuple[str, int | None]  # a row's file, relative to the source's root, and its line or number from 1


@dataclass(frozen=True)
class Joined:
    """All groups, one after another."""

    keys: Sequence[str | None]  # None for a row of unknown group
    places: Sequence[Place]  # the first row of each
    columns: Mapping[str, tuple[pa.Array, Ints | None]]  # values; those of lists with their bounds
    faults: Faults

    def rows(self, start: int, stop: int) -> pa.Table:
        """Makes a table of some groups."""
        columns = dict[str, pa.Array]()
        for name, (values, bounds) in self.columns.items():
            if bounds is None:
                columns[name] = arrays.plain(values.slice(start, stop - start))
                continue
            first, counts = int(bounds[start]), np.diff(bounds[start : stop + 1])
            inside = arrays.plain(values.slice(first, int(bounds[stop]) - first))
            columns[name] = arrays.as_lists(counts, inside, np.zeros(len(counts), bool))
        return pa.table(columns)

    def packed(self, start: int, stop: int) -> bytes:
        """Packs some groups; Arrow's stream cuts what a pickled slice would hold whole."""
        table, sink = self.rows(start, stop), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        faults = {number - start: self.faults[number] for number in range(start, stop) if number in self.faults}
        return pack((sink.getvalue().to_pybytes(), self.keys[start:stop], self.places[start:stop], faults))


class Groups:
    """Collects rows of tables by their groups."""

    def __init__(self, group: Sequence[str], columns: Columns, known: Iterable[str] | None = None) -> None:
        """Takes the columns that make a group, and those asked; with `known` keys, other groups are only counted."""
        self.group, self._columns, self._is_known = group, columns, known is not None
        self.asked = {**dict.fromkeys(group, Column(ColumnType.CATEGORY)), **columns}
        """The columns as a row of the table holds them: one value of a list, or the four numbers of a box."""
        for name, each in [(name, each) for name, each in columns.items() if each.many]:
            many = each.multiple > 1 or each.separator != Column.separator
            self.asked[name] = replace(each, many=many, optional=True, length=None)
        self._ids: dict[Any, int] = {}
        for key in known or ():
            self._ids.setdefault(key, len(self._ids))
        self._places, self._faults = list[Place](), Faults()
        empty = {name: _held(pa.array([], arrays.arrow_type(self.asked[name]))) for name in columns}
        self._parts = [{**empty, ID: np.zeros(0, np.int32), IS_FILLED: np.zeros(0, bool)}]
        self.rows = self.others = self.lost = self.bare = 0
        """The rows of the tables; those of other groups than the known ones; of no known group; without any number."""

    def add(self, block: Block, place: Callable[[int], Place]) -> None:
        """Adds rows, read as `asked` with the group's columns as key; `place` finds a position."""
        self.rows += block.table.num_rows + len(block.rejects)
        for reject in block.rejects:
            file, line = where = place(reject.position)
            self.lost += reject.key is None
            if (number := self._number(reject.key or where, where)) >= 0:
                message = f"{file}, line {line}: {reject.message}"
                self._faults.setdefault(number, Fault(reject.reason, message, reject.column, reject.path))
        places = map(place, block.table["@position"].to_pylist())
        ids = np.fromiter(map(self._numbered, self._keys(block.table), places), np.int64)
        table, ids = block.table.filter(pa.array(ids >= 0)), ids[ids >= 0]
        values = {name: table[name].combine_chunks() for name in self._columns}
        filled = {name: _filled(values[name]) for name, column in self._columns.items() if column.many}
        present = {name: ~_empty(values[name]) for name in filled}
        numbers = [each for name, each in present.items() if self._columns[name].type is ColumnType.NUMBER]
        is_filled = np.logical_or.reduce([np.zeros(len(ids), bool), *(numbers or present.values())])
        self.bare += int(np.logical_or.reduce([is_filled, *present.values()]).sum() - is_filled.sum())
        for name, is_there in filled.items():
            for row in np.flatnonzero(is_filled & ~is_there).tolist():
                file, line = place(table["@position"][row].as_py())
                message = f"{file}, line {line}: the cell is empty, and others of its row are not"
                self._faults.setdefault(int(ids[row]), Fault("missing_value", message, name))
        held = {name: _held(each) for name, each in values.items()}
        self._parts.append({**held, ID: ids.astype(np.int32), IS_FILLED: is_filled})

    def _numbered(self, key: str | None, place: Place) -> int:
        number = self._number(key or place, place)
        if key is None and number >= 0:
            message = f"{place[0]}, line {place[1]}: the row has no value to group it by"
            self._faults.setdefault(number, Fault("missing_value", message, self.group[0]))
        return number

    def _number(self, key: Any, place: Place) -> int:
        """Returns a group's number, -1 for an unknown one."""
        number = self._ids.get(key, -1)
        if number >= 0 or self._is_known:
            self.others += number < 0 and isinstance(key, str)
            return number
        self._places.append(place)
        return self._ids.setdefault(key, len(self._ids))

    def _keys(self, table: pa.Table) -> Iterable[str | None]:
        encoded = [table[name].combine_chunks().dictionary_encode() for name in self.group]
        values = (each.dictionary.to_pylist() for each in encoded)
        parts = [[key_part(each) or content_digest(parse(each).data or b"").decode() for each in one] for one in values]
        indices = (each.indices.fill_null(-1).to_pylist() for each in encoded)
        # -1 is the last, None.
        cells = ([*map([*part, None].__getitem__, places)] for part, places in zip(parts, indices, strict=True))
        return (None if None in row else join_key(row).decode() for row in zip(*cells, strict=True))

    def join(self) -> Joined:
        """Joins all rows; these are held no longer."""
        ids, is_filled = (np.concatenate([part.pop(name) for part in self._parts]) for name in (ID, IS_FILLED))
        order = np.argsort(ids, kind="stable").astype(np.uint32)
        lists = order[is_filled[order]]
        every, filled = (np.searchsorted(ids[rows], np.arange(len(self._ids) + 1)) for rows in (order, lists))
        columns = dict[str, tuple[pa.Array, Ints | None]]()
        for number in np.flatnonzero(np.diff(filled) > OBJECTS.most).tolist():
            self._faults[number] = Fault(OBJECTS.reason, OBJECTS.beyond(int(filled[number + 1] - filled[number])))
        for name, column in self._columns.items():
            values = pa.chunked_array([part.pop(name) for part in self._parts]).unify_dictionaries().combine_chunks()
            columns[name] = _lists(values, lists, filled) if column.many else self._single(name, values, order, every)
        keys = [key if isinstance(key, str) else None for key in self._ids]
        return Joined(keys, self._places, columns, self._faults)

    def _single(self, name: str, values: pa.Array, order: npt.NDArray[Any], bounds: Ints) -> tuple[pa.Array, None]:
        """Returns the first value of each group; another one is a fault, which shows numbers only."""
        counts = np.diff(bounds)
        first = np.zeros(len(counts), np.int64)
        first[counts > 0] = order[bounds[:-1][counts > 0]]
        codes = values.dictionary_encode().indices.fill_null(-1).to_numpy()
        groups = np.repeat(np.arange(len(counts)), counts)
        for at in np.flatnonzero(codes[order] != codes[first[groups]]).tolist():
            number, two = int(groups[at]), (values[first[groups[at]]], values[order[at]])
            is_number = self._columns[name].type in (ColumnType.NUMBER, ColumnType.INTEGER)
            shown = f": {two[0]} and {two[1]}" if is_number else ""
            message = f"rows of one `{', '.join(self.group)}` differ in a column read as one value{shown}"
            self._faults.setdefault(number, Fault("wrong_type", message, name))
        return values.take(pa.array(first, mask=counts == 0)), None


def _held(values: pa.Array) -> pa.Array:
    """Keeps a repeated value once; numbers with a fraction rarely repeat."""
    return values if arrays.is_list(values.type) or pt.is_floating(values.type) else values.dictionary_encode()


def _filled(values: pa.Array) -> Any:
    return arrays.lengths(values) > 0 if arrays.is_list(values.type) else ~arrays.absent(values)


def _empty(values: pa.Array) -> Any:
    """Marks what is missing, or an empty text."""
    return np.asarray(pc.equal(values, "").fill_null(True)) if pt.is_string(values.type) else ~_filled(values)


def _lists(values: pa.Array, rows: Ints, bounds: Ints) -> tuple[pa.Array, Ints]:
    values = values.take(pa.array(rows))
    if not arrays.is_list(values.type):
        return values, bounds
    return values.flatten(), np.concatenate([[0], np.cumsum(arrays.lengths(values))])[bounds]


def add_chunks(groups: Groups, reader: SourceReader[Any], chunks: Sequence[Chunk], files: Files) -> None:
    """Reads all rows of a reader."""
    before = Counter[str]()
    for chunk in chunks:
        covered = 0
        for block in reader.read_chunk(chunk, files, groups.asked, groups.group):
            groups.add(block, partial(_place, reader, chunk, before[chunk.file]))
            covered += block.positions
        before[chunk.file] += covered


def _place(reader: SourceReader[Any], chunk: Chunk, before: int, position: int) -> Place:
    """Returns a position's place, by the number of positions in the file before the chunk."""
    file, line = reader.locate(chunk, position)
    return file, line and before + line


@dataclass(frozen=True)
class GroupedReader(SourceReader[RowsOptions]):
    """Reads the groups of another reader's rows."""

    inner: SourceReader[Any]

    def root(self, files: Files) -> str:
        return self.inner.root(files)

    def image_root(self, files: Files) -> str:
        return self.inner.image_root(files)

    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        return self.inner.list_inputs(files, columns)

    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Reads and joins all rows, and packs them into chunks; `rows` is exact."""
        group = [self.source.columns.get(name, name) for name in self.source.group]
        if wrong := [name for name in group if name in columns and columns[name].is_list]:
            raise SourceError(f"{self.source.path}: `group`: column {wrong[0]!r} is read as a list: name another")
        groups = Groups(group, columns)
        plan = self.inner.plan_chunks(files, {**groups.asked, **columns}, chunk_bytes)
        with planning(self.source.path):
            add_chunks(groups, self.inner, plan.chunks, files)
        joined = groups.join()
        count = len(joined.keys)
        cost = source_reader.ROW_BYTES + plan.bytes // max(count, 1)
        parts = even_parts(np.full(count, cost), chunk_bytes) if count else []
        packed = (joined.packed(part.start, part.stop) for part in parts)
        chunks = [Chunk(0, 0, "", len(each), each) for each in packed]
        made = f"rows of the tables, joined by `{', '.join(self.source.group)}`: {groups.rows:,}, to {count:,} rows"
        bare = [f"rows with a class, but without numbers such as boxes, left out: {groups.bare:,}"] * (groups.bare > 0)
        notes = [*plan.notes, made, *bare]
        return replace(plan, chunks=chunks, rows=count, notes=notes, is_exact=True, referred_bytes=0)

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads a chunk's rows; the default key is the group's value."""
        stream, keys, _, faults = unpacked(chunk.work)
        table = pa.ipc.open_stream(stream).read_all()
        typed = {name: table[name].combine_chunks() for name in columns}
        yield TypedRows(typed, len(keys), dict(faults), None, (each and each.encode() for each in keys))

    def locate(self, chunk: Chunk, position: int) -> Place:
        """Returns the first row of a group in the tables."""
        return cast(Place, unpacked(chunk.work)[2][position])
