"""The rows of a step, the steps of a row, and rows that a training leaves out.

Nothing is recorded: the order is a function, and a question reads the step's records alone. A version knows the sources
of adopted rows, its files; of other rows, `pipeline.build.results.row_origins` finds them by reading the sources.
"""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recordmill.pipeline.dataset.placement import as_key, digest, read_keys
from recordmill.pipeline.errors import DatasetError, listed
from recordmill.pipeline.reader.batches import BatchSource, Find, records_of
from recordmill.pipeline.reader.order import Integers, Selected
from recordmill.pipeline.reader.records import Records
from recordmill.pipeline.reader.request import Request, check_batches
from recordmill.pipeline.reader.rows import LOG, Chosen, Rows
from recordmill.pipeline.safe_text import count


class Row(NamedTuple):
    """A record in a step's batch."""

    place: int  # the batch's row, from 0, of all records that the build packed in it; else the record's number
    key: str  # the row's key as text; invalid UTF-8 as surrogates
    share: float  # its share of the values of its packed row, above 0; 1.0 alone
    file: str | None  # the path or URL of the source's file; None: the version does not know it
    line: int | None  # the number of the record there, from 1
    dataset: str
    version: str
    split: str
    position: int  # the record's number in the split, from 0, in the order of `evaluation_input`

    @property
    def record(self) -> tuple[str, str, str, int]:
        """The record: its dataset, version, split and position."""
        return self[-4:]


def rows_of(source: BatchSource, step: int) -> list[Row]:
    """Returns the rows of a step's batch, in its order. Raises: as `Input.rows`."""
    if not source.of_epoch:
        raise DatasetError("the input is empty: it has no steps")
    found = list[Row]()
    with closing(source.open()) as batches:
        for rows, chosen, places in batches.parts(step):
            if source.given.on_error == "skip":  # damaged rows are left out or replaced
                [(_, intact)] = rows.read([chosen])
                chosen, places = chosen.keep(intact), places[intact]
            if source.given.pad:
                real = chosen.weights > 0
                chosen, places = chosen.keep(real), places[real]
            found += _rows(rows, chosen, places)
    found.sort(key=lambda row: row.place)
    numbers = {place: number for number, place in enumerate(dict.fromkeys(row.place for row in found))}
    return [row._replace(place=numbers[row.place]) for row in found]


def _rows(rows: Rows, chosen: Chosen, places: Integers) -> list[Row]:
    request, numbers, shares = rows.request, chosen.numbers, np.ones(len(places))
    if request.packing is not None:
        pieces = rows.pieces(numbers)
        of_row = np.repeat(np.arange(len(places)), np.diff(pieces.splits))
        shares = pieces.sizes / np.bincount(of_row, pieces.sizes)[of_row]
        numbers, places = pieces.records, places[of_row]
    keys = (key.decode("utf-8", "surrogateescape") for key in rows.keys(numbers))
    origins: Iterable[tuple[Any, Any]] = repeat((None, None), len(numbers))
    if any(shard.name for shard in request.shards):
        origins = ((at.file, at.record + 1) for at in map(rows.records.where, numbers.tolist()))
    names, firsts = [*request.splits], np.array([*request.splits.values()], np.int64)
    splits = np.searchsorted(firsts, numbers, side="right") - 1
    columns = (array.tolist() for array in (places, shares, splits, numbers - firsts[splits]))
    return [
        Row(place, key, share, *origin, request.dataset, request.version, names[split], position)  # type: ignore[call-arg]
        for place, share, split, position, key, origin in zip(*columns, keys, origins, strict=True)
    ]


def steps_of(source: BatchSource, key: str | bytes, epoch: int) -> list[int]:
    """Returns the steps of an epoch in which this host reads a key. Raises: as `Input.steps_of`."""
    found = {id(each.request): records_of(each.request, each.find, [as_key(key)]) for each in source.sources}
    if not any(keys for _, keys in found.values()):
        raise DatasetError(f"no row has the key {key!r}: `recordmill head` shows some keys")
    with closing(source.open()) as batches:
        parts = ((step, batches.parts(step)) for step in range(epoch * source.of_epoch, (epoch + 1) * source.of_epoch))
        return [
            step
            for step, of_step in parts
            if any(np.isin(rows.records_in(at.numbers), found[id(rows.request)][0]).any() for rows, at, _ in of_step)
        ]


def leave_out(request: Request, records: Records, find: Find) -> Request:
    """Leaves the rows of `without` out of a request's order, and out of packed rows, which keep their other records.

    Raises: DatasetError: the list is unreadable, no row of the version has a key, or too few records stay.
    """
    keys = keys_in(request.given.without)
    if not keys:
        return request
    gone, found = records_of(request, find, keys)
    split = f"'{request.given.split}' of {request.dataset}"
    if unknown := [key.decode("utf-8", "replace") for key in keys if key not in found]:
        several = f"{len(unknown):,} of {count(len(keys), 'key')} of without are of no row in {request.version}"
        where = "`recordmill show DIR --record KEY` says whether it was rejected or forgotten"
        raise DatasetError(f"{several}: {listed(unknown, 3)}; {where}")
    selected = Selected(request.ranges)
    numbers = selected.numbers_of(gone if request.packing is None else records.rows_of(gone))
    read = selected(numbers)
    if request.packing is not None:
        pieces = records.pieces(read)
        left = pieces.without_pieces(np.flatnonzero(np.isin(pieces.records, gone)))
        numbers, read = numbers[np.diff(left.splits) == 0], pieces.records
    if len(numbers) == request.steps.records > 0:
        raise DatasetError(f"without leaves out all {len(numbers):,} rows of {split}: keep some")
    if (elsewhere := sum(map({*read.tolist()}.isdisjoint, found.values()))) and request.steps.records:
        several = f"{elsewhere:,} of {count(len(keys), 'key')} of without belong to no row of {split}"
        if elsewhere == len(keys):
            raise DatasetError(f"{several}: give the keys to the input that reads their rows")
        if not request.given.host_index:  # once for all hosts
            LOG.warning("%s, and leave nothing out there", several)
    made = replace(
        request,
        given=replace(request.given, without=keys),  # pickles
        steps=replace(request.steps, records=request.steps.records - len(numbers)),
        without=described(keys),
        gone=gone,
        gone_rows=numbers,
    )
    check_batches(made)
    return made


def described(keys: Sequence[bytes]) -> str:
    """Describes unique keys, in any order, as a state does: `6 keys, 0f1e2d3c4b5a6978`."""
    return f"{count(len(keys), 'key')}, {hashlib.sha256(b''.join(sorted(map(digest, keys)))).hexdigest()[:16]}"


def keys_in(given: Any) -> list[bytes]:
    """Returns the keys of a list or of a file, each once. Raises: DatasetError."""
    try:
        of_file = read_keys(Path(given)) if isinstance(given, str | Path) else given
        return [*dict.fromkeys(map(as_key, of_file))]
    except (OSError, TypeError) as error:
        wanted = "without is a file of keys, one a line, or a list of keys"
        raise DatasetError(f"{given} cannot be read ({getattr(error, 'strerror', error)}): {wanted}") from None
