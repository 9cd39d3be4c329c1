r"""The records of a CSV file by their bytes: found exactly, whatever the file holds, at about 1 s a GB.

At the beginning of a cell a quote opens a quoted cell; elsewhere it is a plain character. In a quoted cell a doubled
quote is one, and a lone one closes it. Outside, a line break (LF or CRLF; CR where no LF is) ends it. Text after a
closing quote breaks the record, which ends with that line. A record of 64 MiB, or of more signs than `CSV_SIGNS`
allows, is too large, and ends with the next line break: this limits the cost of an open quote.

>>> records = find_records(b'a,"b\nc"\n\nd\n', Dialect(), is_last=True)
>>> records.starts, records.lines
(array([0, 8, 9]), array([0, 2, 3]))
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.sources import encoded
from recordmill.pipeline.sources.encoded import MAX_LINE_BYTES, PIECE_BYTES, TAIL_BYTES, EncodedFile, Rows
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.options import DelimitedOptions
from recordmill.pipeline.sources.source_reader import Chunk, FileRange
from recordmill.transforms.base.bounds import CSV_SIGNS

LINE_BREAKS = b"\r\n"
LETTER, BLANK = b"a "
CARRIAGE_RETURN, NEWLINE = LINE_BREAKS
OPEN_QUOTE = "the record is not CSV: unexpected end of data"
TOO_LARGE = "the record is longer than 64 MiB"
MIXED = "its first lines end with CR, later ones with LF: write one of them, such as by `tr '\\r' '\\n'`"


@dataclass(frozen=True)
class Dialect:
    """The special characters, each one ASCII character, and rules of cells."""

    separator: str = ","
    quote: str | None = '"'  # None for unquoted cells
    escape: str | None = None  # makes the next character literal
    trim: bool = False  # whether leading blanks of cells are stripped
    returns: bool = False  # whether a CR alone ends a record

    @classmethod
    def of(cls, options: DelimitedOptions) -> "Dialect":
        return cls(options.separator, options.quote, options.escape, options.trim)

    def plain(self, buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Replaces escapes and escaped characters by letters, and leading blanks of cells by separators."""
        plain = buffer.copy() if self.escape or self.trim else buffer
        if self.escape:
            escapes = np.flatnonzero(buffer == ord(self.escape))
            escapes = escapes[(escapes - _runs(escapes)) % 2 == 0]
            plain[escapes] = plain[np.minimum(escapes + 1, len(plain) - 1)] = LETTER
        if self.trim:
            blanks = np.flatnonzero(plain == BLANK)
            before = _runs(blanks) - 1
            opens = (before < 0) | np.isin(plain[before], [*LINE_BREAKS, ord(self.separator)])
            plain[blanks[opens]] = ord(self.separator)
        return plain

    def shown(self, data: bytes) -> bytes:
        """Makes letters of the CRs that end no record; the last byte's may."""
        is_plain = self.returns or data.count(b"\r") == data.count(b"\r\n")
        return data if is_plain else re.sub(rb"\r(?!\n|\Z)", b"a", data)


def _runs(positions: Rows) -> Rows:
    """Returns for each position the first of its run of consecutive ones."""
    return np.maximum.accumulate(np.where(np.diff(positions, prepend=-2) == 1, 0, positions))


@dataclass(frozen=True)
class CsvRecords:
    """Consecutive whole records of a file."""

    data: bytes
    starts: Rows  # the byte of `data` at each record's start, shape [records]
    stops: Rows  # the end of each text, without its line break
    lines: Rows  # the line of each start, counted from the first record's
    line_count: int
    end: int  # the number of bytes of `data` covered, including the last line break
    faults: dict[int, str] = field(default_factory=dict)
    is_too_large: bool = False  # whether this is one record, too large to read

    @property
    def filled(self) -> Rows:
        return np.flatnonzero(self.stops > self.starts)

    def batches(self, chosen: Rows, size: int) -> Iterator[tuple[Rows, int, int]]:
        """Yields at most `size` chosen records at a time, and the lines covered, in all every one: first, number."""
        starts = range(0, max(1, len(chosen)), size)
        bounds = [0, *(int(self.lines[chosen[start]]) for start in starts[1:]), self.line_count]
        for start, (line, end) in zip(starts, pairwise(bounds), strict=True):
            yield chosen[start : start + size], line, end - line

    def fault(self, record: int) -> str:
        """Returns an invalid record's fault: without a known one, it ends too early."""
        return self.faults.get(record, OPEN_QUOTE)

    def text(self, record: int) -> bytes:
        return self.data[self.starts[record] : self.stops[record]]

    def line(self, record: int) -> bytes:
        """The bytes of a record with its line break, if any: an escape may precede it."""
        stop = self.starts[record + 1] if record + 1 < len(self.starts) else self.end
        return self.data[self.starts[record] : stop]


def read_records(file: EncodedFile, dialect: Dialect, size: int | None = None) -> Iterator[CsvRecords]:
    """Yields all records, about `size` bytes (8 MiB) at a time. Raises: SourceError: they end with CR, then LF."""
    rest, size = b"", size or PIECE_BYTES
    head = file.before or file.peek(max(size, TAIL_BYTES))
    dialect = replace(dialect, returns=b"\r" in head and b"\n" not in head)
    while True:
        more = file.read(min(max(size, min(len(rest), PIECE_BYTES)), MAX_LINE_BYTES - len(rest)))
        records = find_records(rest + more, dialect, is_last=not more)
        first = int(records.stops[0]) if len(records.stops) else len(records.data)  # later records are shorter
        if first > CSV_SIGNS.most:
            signs = [*LINE_BREAKS, *f"{dialect.separator}{dialect.quote or ''}".encode()]
            places = np.flatnonzero(np.isin(np.frombuffer(records.data, np.uint8, first), signs))
            if len(places) > CSV_SIGNS.most:
                fault, beyond = CSV_SIGNS.beyond(CSV_SIGNS.most + 1), int(places[CSV_SIGNS.most])
                too_large, rest = _too_large(file, rest + more, beyond, fault, dialect)
                yield too_large
                continue
        if dialect.returns and b"\n" in {records.data[end - 1 : end] for end in [*records.starts[1:], records.end]}:
            raise SourceError(f"{file.path}: {MIXED}")
        if len(records.starts):
            yield records
        if not more:
            return
        rest = records.data[records.end :]
        if len(rest) >= MAX_LINE_BYTES:
            too_large, rest = _too_large(file, rest, len(rest) - rest.endswith(b"\r"), TOO_LARGE, dialect)
            yield too_large


def find_records(data: bytes, dialect: Dialect, *, is_last: bool) -> CsvRecords:
    """Finds the records in bytes that begin with one; skips the last, perhaps incomplete, one unless `is_last`."""
    shown = dialect.shown(data)
    buffer = np.frombuffer(shown, np.uint8)
    breaks = _line_breaks(shown, buffer, is_last)
    plain = dialect.plain(buffer)
    is_break = (plain[breaks] == NEWLINE) | (plain[breaks] == CARRIAGE_RETURN)
    bounds, broken = _quoted_cells(plain, breaks, dialect)
    ends_broken = np.searchsorted(breaks, broken)
    is_break[ends_broken[ends_broken < len(breaks)]] = True
    ending = np.flatnonzero((np.searchsorted(bounds, breaks) % 2 == 0) & is_break)
    ends, lines, line_count = breaks[ending] + 1, np.append(0, ending + 1), int(ending[-1]) + 1 if len(ending) else 0
    is_crlf = (plain[ends - 1] == NEWLINE) & (ends > 1) & (plain[ends - 2] == CARRIAGE_RETURN)
    stops = ends - 1 - is_crlf  # the ends of the texts
    if is_last and len(data) > (ends[-1] if len(ends) else 0):
        ends, stops = np.append(ends, len(data)), np.append(stops, len(data))
        line_count = len(breaks) + int(not len(breaks) or breaks[-1] < len(data) - 1)
    starts = np.append(0, ends)[: len(ends)]
    end = int(ends[-1]) if len(ends) else 0
    wrong = "the record is not CSV: text after a closing quote"
    faults = {int(np.searchsorted(starts, quote, "right")) - 1: wrong for quote in broken if quote < end}
    if is_last and len(bounds) % 2:
        faults[len(starts) - 1] = OPEN_QUOTE
    return CsvRecords(data, starts, stops, lines[: len(starts)], line_count, end, faults)


def _line_breaks(data: bytes, buffer: npt.NDArray[np.uint8], is_last: bool) -> Rows:
    """Finds the last bytes of line breaks; a CR at the end does not count if an LF may follow."""
    breaks = np.flatnonzero(buffer == NEWLINE)
    if b"\r" not in data or data.count(b"\r") == data.count(b"\r\n"):
        return breaks
    returns = np.flatnonzero(buffer == CARRIAGE_RETURN)
    following = buffer[np.minimum(returns + 1, len(data) - 1)]  # after the last byte: the CR itself
    return np.sort(np.concatenate([breaks, returns[(following != NEWLINE) & (is_last | (returns + 1 < len(data)))]]))


def _quoted_cells(buffer: npt.NDArray[np.uint8], breaks: Rows, dialect: Dialect) -> tuple[Rows, list[int]]:
    """Finds quotes, opening and closing in turns, and closing ones before text; one look is enough for most files."""
    if dialect.quote is None:
        return np.empty(0, np.int64), []
    quotes = np.flatnonzero(buffer == ord(dialect.quote))
    opening, closing = quotes[0::2], quotes[1::2]
    beside = np.zeros(256, bool)
    beside[[*LINE_BREAKS, ord(dialect.separator), ord(dialect.quote)]] = True
    is_first, is_last = opening == 0, closing == len(buffer) - 1
    before, after = buffer[opening - 1], buffer[np.minimum(closing + 1, len(buffer) - 1)]
    if (beside[before] | is_first).all() and (beside[after] | is_last).all():
        return quotes, []
    return _walk(buffer.tobytes(), quotes.tolist(), breaks, LINE_BREAKS + dialect.separator.encode())


def _walk(data: bytes, quotes: list[int], breaks: Rows, beside: bytes) -> tuple[Rows, list[int]]:
    """Does the same for any quotes, one by one."""
    bounds, broken = list[int](), list[int]()
    position, first = 0, 0
    while position < len(quotes):
        opening = quotes[position]
        position += 1
        if opening < first or (opening and data[opening - 1] not in beside):
            continue
        bounds.append(opening)
        while position + 1 < len(quotes) and quotes[position + 1] == quotes[position] + 1:
            position += 2
        if position == len(quotes):
            break
        closing = quotes[position]
        position += 1
        bounds.append(closing)
        if closing + 1 < len(data) and data[closing + 1] not in beside:
            broken.append(closing)
            line = np.searchsorted(breaks, closing)
            first = int(breaks[line]) + 1 if line < len(breaks) else len(data)
    return np.array(bounds, np.int64), broken


def _too_large(file: EncodedFile, data: bytes, at: int, fault: str, dialect: Dialect) -> tuple[CsvRecords, bytes]:
    """Skips a record until the first line break from a byte on; returns it empty, and the bytes read beyond."""
    at -= data[at - 1 : at + 1] == LINE_BREAKS
    held = data[at:]
    head = dialect.shown(data[:at])
    lines = len(_line_breaks(head, np.frombuffer(head, np.uint8), is_last=dialect.returns))
    size, rest, fault = at, b"", f"{fault}: perhaps a quote is not closed"
    while more := held + file.read(min(TAIL_BYTES, MAX_LINE_BYTES)):
        shown = dialect.shown(more)
        breaks = _line_breaks(shown, np.frombuffer(shown, np.uint8), is_last=more == held)
        if len(breaks):
            size, rest = size + int(breaks[0]) + 1, more[breaks[0] + 1 :]
            break
        held = more[-1:] if more.endswith(b"\r") else b""
        size += len(more) - len(held)
    zero = np.zeros(1, np.int64)
    return CsvRecords(b"", zero, zero + size, zero, lines + 1, size, {0: fault}, is_too_large=True), rest


def all_records(files: Files, path: str, encoding: str, dialect: Dialect) -> Iterator[tuple[CsvRecords, int, int]]:
    """Yields a file's records, with the byte and the line of the first; the byte where reading may start anywhere."""
    line = 0
    can_cut = encoded.can_start_anywhere(path, encoding)
    with encoded.open_utf8(files, path, "utf-8" if can_cut else encoding) as opened:
        opened.check_start()
        first = opened.mark_bytes
        for records in read_records(opened, dialect):
            yield records, first, line
            first += records.end
            line += records.line_count


@dataclass(frozen=True)
class RecordRange(FileRange):
    """Some records of a file, and their options."""

    dialect: Dialect = Dialect()
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()
    head: int = 1  # the number of records before the rows: skipped ones and the header
    first_line: int = 0  # the line of `start` in the file, from 0

    def cut(self, files: Files, root: str, file: FileInfo, chunk_bytes: int) -> tuple[list[Chunk], int]:
        """Cuts a file, this whole range, at records into ranges of about `chunk_bytes`; counts its rows.

        Reads it all, at about 1 s a GB: a record's start depends on every quote before it. Compressed files, and
        encodings without visible lines, stay whole. Raises: SourceError: the encoding is wrong.
        """
        path = f"{root}/{file.path}"
        parts = -(-file.bytes // chunk_bytes) if encoded.can_start_anywhere(path, self.encoding) else 1
        starts, wanted = [self], np.array([file.bytes * part // parts for part in range(1, parts)], np.int64)
        seen = -self.head
        for records, first, line in all_records(files, path, self.encoding, self.dialect):
            rows = records.filled[max(0, 1 - seen) :]  # keeps the header and a row in the first range
            offsets = records.starts[rows] + first
            while len(wanted) and len(rows) and offsets[-1] >= wanted[0]:
                row = np.searchsorted(offsets, wanted[0])
                first_line = line + int(records.lines[rows[row]])
                starts.append(replace(self, start=int(offsets[row]), first_line=first_line))
                wanted = wanted[wanted > offsets[row]]
            seen += len(records.filled)
        return FileRange.chunks_of(file, starts), max(0, seen)

    def read(self, files: Files, path: str) -> Iterator[tuple[CsvRecords, Rows, int]]:
        """Yields a range's records, the rows among them (neither blank nor header), and their first line in it."""
        to_skip, line = 0 if self.start else self.head, 0
        with encoded.open_utf8(files, path, self.encoding, self.start, self.end) as file:
            for records in read_records(file, self.dialect):
                filled = records.filled
                yield records, filled[to_skip:], line
                to_skip = max(0, to_skip - len(filled))
                line += records.line_count
