"""The user's filter: keeps a row, or gives a reason to leave it out, before anything is learned or compared.

The first pass over a chunk leaves its answers in the workspace; later passes and attempts read them.
"""

import json
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from traceback import walk_tb
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.context.arrow_files import write_table
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import chunk_step, write_rejects
from recordmill.pipeline.build.duplicates.decisions import read_decisions
from recordmill.pipeline.dataset.counts import FILTERED
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.parallel import in_order
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.faults import Fault, Faults, Reject
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.sources.typing.arrays import without
from recordmill.pipeline.sources.user_code import FAILURES, UserCodeError, blame, load
from recordmill.transforms.images.image_header import ImageError

FOLDER = "placement/filtered"  # a file for each chunk
ANSWERS = pa.schema({"position": pa.int64(), **dict.fromkeys(Fault.__match_args__, pa.string())})  # not of kept rows
TEXTS = {pa.binary(): pa.string(), pa.list_(pa.binary()): pa.list_(pa.string())}
LONGEST, MOST_REASONS = 100, 100  # characters; reasons of a chunk, since the manifest counts each


class Row(UserDict[str, Any]):
    """A row's values by feature; decodes an image when it is taken."""

    def __getitem__(self, name: str) -> Any:
        value = self.data[name]
        if callable(value):
            value = self.data[name] = value()
        return value


class RowFilter:
    """Filters the rows of one chunk, block by block; without a function of the user it keeps all."""

    def __init__(self, planned: PlannedBuild, chunk: Chunk) -> None:
        """Reads the answers of an earlier pass. Raises: UserCodeError: without them, the function is missing."""
        self._planned, self._chunk, self._name = planned, chunk, planned.filter
        self._images = {name: each.model_copy(update={"store": "png"}) for name, each in planned.images().items()}
        known = read_decisions(planned.decisions.filtered, planned, chunk.index)
        self._faults = {row.pop("position"): Fault(**row) for row in known.to_pylist()} if known else {}
        self._reasons = set[str]()
        self.function: Callable[[Row], Any] | None = load(self._name) if self._name and known is None else None
        """To be called in this pass; it may take images."""

    def __call__(self, rows: pa.Table, others: Iterable[Reject]) -> tuple[pa.Table, list[Reject]]:
        """Returns the kept rows and the rejects; `others` are the block's so far. Raises: UserCodeError."""
        if not self._name:
            return rows, []
        keys = [key.decode("utf-8", "replace") for key in rows["@key"].to_pylist()]
        places = rows["@position"].to_pylist()
        if self.function:
            given = zip(keys, self._rows(rows), strict=True)
            answers = in_order(self._ask, given, self._planned.threads) if self._images else map(self._ask, given)
            found = {place: fault for place, fault in zip(places, answers, strict=True) if fault}
            lost = [each for each in others if each.path]  # unseen: they stay out if their files come back
            self._faults |= found | {e.position: Fault(e.reason, e.message, e.column, e.path) for e in lost}
            self._reasons |= {fault.message for fault in found.values() if fault.reason == FILTERED}
            if len(self._reasons) > MOST_REASONS:
                many = f"more than {MOST_REASONS} reasons, such as '{min(self._reasons)}': name the rule, not the row"
                raise UserCodeError(f"`{self._name}` gives {many}")
        faults: Faults = {row: self._faults[place] for row, place in enumerate(places) if place in self._faults}
        rejects = [fault.reject(self._chunk.index, places[row], keys[row]) for row, fault in faults.items()]
        return without(rows, faults), rejects

    def keep(self) -> None:
        """Leaves the answers about a whole chunk to later passes, after the rejects of files that may come back."""
        if self.function and self._planned.decisions.filtered:
            faults, name = self._faults.items(), f"{FOLDER}/{chunk_step(self._chunk.index)}"
            lost = [fault.reject(self._chunk.index, place) for place, fault in faults if fault.path]
            write_rejects(self._planned.workspace, name, lost)
            answers = pa.Table.from_pylist([{"position": place, **vars(fault)} for place, fault in faults], ANSWERS)
            write_table(self._planned.workspace, f"{name}.arrow", answers)

    def _ask(self, given: tuple[str, dict[str, Any]]) -> Fault | None:
        key, values = given
        try:
            reason = self.function(Row(values)) if self.function else None
        except ImageError as error:
            return Fault(error.reason, error.message, None, error.path)
        except UserError:  # of an image: memory is short, or a decoder is missing
            raise
        except FAILURES as error:
            if RowFilter._pixels.__code__ in (frame.f_code for frame, _ in walk_tb(error.__traceback__)):
                raise  # of reading an image: the disk or the network failed
            raise UserCodeError(f"{blame(error, self._name or '', values)}; the row: {cut(repr(key))}") from error
        if reason is None or (isinstance(reason, str) and 0 < len(reason) <= LONGEST and reason.isprintable()):
            return None if reason is None else Fault(FILTERED, reason[:])  # a plain str of an Enum's
        got = f"{len(reason):,} of them" if isinstance(reason, str) else f"the type {type(reason).__name__}"
        if isinstance(reason, str) and not reason.isprintable():
            got = f"{next(each for each in reason if not each.isprintable())!r} among them"
        wanted = f"None to keep a row, or a reason: a str of 1 to {LONGEST} printable characters"
        raise UserCodeError(f"`{self._name}` should return {wanted}; it gave {got}; the row: {cut(repr(key))}")

    def _rows(self, rows: pa.Table) -> Iterator[dict[str, Any]]:
        names = self._planned.schema.features
        columns = [rows[name].to_pylist() if name in self._images else self._values(name, rows[name]) for name in names]
        for source, *cells in zip(rows["@source"].to_pylist(), *columns, strict=True):
            row = dict(zip(names, cells, strict=True))
            yield row | {name: partial(self._pixels, name, source, row) for name in self._images}

    def _values(self, name: str, column: pa.ChunkedArray) -> list[Any]:
        """Decodes a column: texts, numbers, arrays, or the content of JSON; of the latter two None if missing."""
        schema = self._planned.schema
        kind = schema.columns[schema.features[name]]
        if column.type == pa.binary() and (kind.is_blob or name in schema.fields):
            decode, is_ragged = (kind.array.decode, kind.array.is_ragged) if kind.array else (json.loads, False)
            return [decode(each) if each or is_ragged else None for each in column.to_pylist()]
        if pa.types.is_list(column.type) and column.type not in TEXTS:
            return [*column.to_numpy()]
        return column.cast(TEXTS.get(column.type, column.type)).to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def _reader(self) -> Any:
        from recordmill.pipeline.build.images.read import image_reader  # with TensorFlow

        return image_reader(self._planned)

    def _load(self, name: str, source: int, references: Mapping[str, Any]) -> list[Any]:
        of = getattr(self._images[name], "image", None)  # of a mask
        beside = self._load(of, source, references) if of else ()
        return [*self._reader.load_all(source, references[name], self._images[name], beside)]

    def _pixels(self, name: str, source: int, references: Mapping[str, Any]) -> Any:
        """Decodes a row's image, None if it is missing, or its list of images. Raises: ImageError: undecodable."""
        pixels = [each.decoded(self._images[name]) for each in self._load(name, source, references)]
        return pixels if isinstance(references[name], list) else next(iter(pixels), None)
