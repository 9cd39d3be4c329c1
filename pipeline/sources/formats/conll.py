"""Sentences of CoNLL as a source: lines between blank lines are a row, and each column a list of its lines' cells.

    source: {format: conll, path: train.txt, columns: [word, pos, chunk, ner]}

A line with a tab has its cells between tabs, any other between white space of ASCII. The plan reads each file once, to
count its sentences and what is skipped, and cuts it where sentences begin. A sentence's position is its first line, or
in a reject the wrong line.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.batches import batches
from recordmill.pipeline.sources.encoded import MAX_LINE_BYTES, EncodedFile, can_start_anywhere, open_utf8
from recordmill.pipeline.sources.faults import Fault, Faults, SourceError
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.csv_records import RecordRange, read_records
from recordmill.pipeline.sources.formats.text import LINES
from recordmill.pipeline.sources.options import OF_TEXT, Conll
from recordmill.pipeline.sources.paths import join
from recordmill.pipeline.sources.source_reader import Chunk, Key, Plan, TableReader, TypedRows
from recordmill.pipeline.sources.typing.arrays import as_lists, strings
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Columns

DOCUMENT_START = b"-DOCSTART-"  # the first cell of a line between CoNLL-2003's documents
NO_WORD = re.compile(rb"\d+[-.]\d+")  # the ids of CoNLL-U's multi-word ranges and empty nodes
KEY = re.compile(rb"#\s*[\w.-]+\s*=")  # of a comment of CoNLL-U: `# sent_id = 1`
DOCUMENTS, COMMENTS = "-DOCSTART- lines, skipped", "comments, skipped"
NO_WORDS = "multi-word ranges and empty nodes, skipped"
LIKE_IDS = "words such as 1-2 and 8.1 (skipped only in a column `id`)"
BATCH_SENTENCES = 16_384
_, FILE_NAME, _, LINE = OF_TEXT


def cells_of(line: bytes) -> list[bytes]:
    """Splits a line into its cells."""
    return line.split(b"\t") if b"\t" in line else line.split()


def is_comment(line: bytes, cells: int) -> bool:
    """Whether a line before a sentence, of words with so many cells, is a comment; `# NN O` is a word."""
    return line.startswith(b"#") and (len(cells_of(line)) != cells or KEY.match(line) is not None)


@dataclass
class Sentence:
    """Lines that belong together."""

    start: int  # the first byte
    line: int  # the first line, from 0
    cells: list[list[bytes]] = field(default_factory=list)  # each line's cells
    size: int = 0
    fault: tuple[int, Fault] | None = None  # the first fault, and its line

    def add(self, line: int, text: bytes, cells: list[bytes], source: Conll) -> None:
        """Adds a line, or the sentence's first fault."""
        self.size += len(text)
        if self.fault:
            return
        if self.size > MAX_LINE_BYTES:
            self.fault, self.cells = (line, Fault("too_large", "the sentence is longer than 64 MiB")), []
        elif len(cells) != len(source.cells):
            wrong = f"the line has {count(len(cells), 'cell')}, `columns` has {len(source.cells)}"
            self.fault = line, Fault("malformed_row", wrong)
        else:
            self.cells.append(cells)


class Sentences:
    """The sentences of a file, from its position on."""

    def __init__(self, file: EncodedFile, source: Conll) -> None:
        self._file, self._source = file, source
        self.lines = 0  # the number of lines read so far
        self.skipped = Counter[str]()  # the numbers of skipped lines

    def __iter__(self) -> Iterator[Sentence]:
        is_conllu, names, current = self._source.format == "conllu", [*map(str.lower, self._source.cells)], None
        id_at = names.index("id") if is_conllu and "id" in names else None
        for start, text in self._texts():
            cells, line = cells_of(text), self.lines - 1
            if not any(cells) or cells[0] == DOCUMENT_START:
                self.skipped[DOCUMENTS] += any(cells)
                if current:
                    yield current
                current = None
            elif not current and (text.startswith(b"#") if is_conllu else is_comment(text, len(names))):
                self.skipped[COMMENTS] += 1
            elif id_at is not None and NO_WORD.fullmatch(b"".join(cells[id_at : id_at + 1])):
                self.skipped[NO_WORDS] += 1
            else:
                self.skipped[LIKE_IDS] += is_conllu and id_at is None and NO_WORD.fullmatch(cells[0]) is not None
                current = current or Sentence(start, line)
                current.add(line, text, cells, self._source)
        if current:
            yield current

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        """Yields each line and its first byte; one over 64 MiB as so many bytes."""
        first = 0
        for records in read_records(self._file, LINES):
            for number, start in enumerate(records.starts.tolist()):
                self.lines += 1
                yield first + start, b"." * (MAX_LINE_BYTES + 1) if records.is_too_large else records.text(number)
            first += records.end


class ConllReader(TableReader[Conll]):
    """Reads files of sentences."""

    def cut(self, files: Files, root: str, inputs: Sequence[FileInfo], columns: Columns, chunk_bytes: int) -> Plan:
        """Cuts the files at sentences into ranges of about `chunk_bytes`; `rows` is exact."""
        chunks, rows, skipped = list[Chunk](), 0, Counter[str]()
        for file in inputs:
            cuts, total = self._cut(files, root, file, chunk_bytes, skipped)
            chunks += RecordRange.chunks_of(file, cuts)
            rows += total
        own = self.source.cells
        names = [*own, *(name for name in (FILE_NAME, LINE) if name in columns and name not in own)]
        notes = [f"{what}: {number:,}" for what, number in sorted(skipped.items()) if number]
        return Plan(chunks, rows, names=names, notes=notes, is_exact=True)

    def _cut(
        self, files: Files, root: str, file: FileInfo, chunk_bytes: int, skipped: Counter[str]
    ) -> tuple[list[RecordRange], int]:
        """Cuts a file, and counts its sentences and skipped lines. Raises: SourceError: no sentence is good."""
        path, encoding, first, rows, good = join(root, file.path), self.source.encoding, None, 0, 0
        cuts, can_cut = [RecordRange()], can_start_anywhere(path, encoding)
        with open_utf8(files, path, "utf-8" if can_cut else encoding) as opened:
            sentences = Sentences(opened, self.source)
            for sentence in sentences:
                start = opened.mark_bytes + sentence.start
                if can_cut and start - cuts[-1].start >= chunk_bytes:
                    cuts.append(RecordRange(start=start, first_line=sentence.line))
                rows, good, first = rows + 1, good + (not sentence.fault), first or sentence.fault
        if first and not good:
            line, fault = first
            remedy = "no sentence fits: name every cell in `columns`, in order"
            raise SourceError(f"{path}, line {line + 1}: {fault.message}; {remedy}")
        skipped += sentences.skipped
        return cuts, rows

    def parse(self, chunk: Chunk, files: Files, columns: Columns, key: Key) -> Iterator[TypedRows]:
        """Reads a chunk's sentences; the default key is the digest of their cells, between tabs and newlines."""
        part: RecordRange = chunk.work
        base, path, done = self.image_base(files, chunk), join(self.root(files), chunk.file), 0
        with open_utf8(files, path, self.source.encoding, part.start, part.end) as opened:
            sentences = Sentences(opened, self.source)
            for batch in chain(batches(sentences, lambda each: each.size, BATCH_SENTENCES), [[]]):
                good, faults, typed = [each for each in batch if not each.fault], Faults(), dict[str, pa.Array]()
                broken = {each.fault[0] - done: each.fault[1] for each in batch if each.fault}
                for name, column in columns.items():
                    values = self._values(name, good, chunk)
                    typed[name] = typed_values(name, column, values, base, faults, as_cells=True)
                keys = map(content_digest, (b"\n".join(map(b"\t".join, each.cells)) for each in good))
                lines = np.array([each.line for each in good], np.int64)
                yield TypedRows(typed, sentences.lines - done, faults, lines - done, keys, broken)
                done = sentences.lines

    def _values(self, name: str, sentences: Sequence[Sentence], chunk: Chunk) -> pa.Array:
        """Makes a column: lists of cells, a file's name, lines from 1, or nulls if unknown."""
        if name in self.source.cells:
            at = self.source.cells.index(name)
            flat = [cells[at] for each in sentences for cells in each.cells]
            counts = np.array([len(each.cells) for each in sentences], np.int64)
            return as_lists(counts, pa.array(flat, pa.binary()).view(pa.string()), np.zeros(len(counts), bool))
        if name == LINE:
            return strings(str(chunk.work.first_line + each.line + 1) for each in sentences)
        return strings(chunk.file if name == FILE_NAME else None for _ in sentences)
