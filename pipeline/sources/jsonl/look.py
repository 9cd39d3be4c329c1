"""A look at JSON Lines before they are read: what the first lines hold, and the number of rows."""

import posixpath
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from shlex import quote
from typing import BinaryIO

import pyarrow as pa

from recordmill.pipeline.sources.base import Files, SourceError
from recordmill.pipeline.sources.compression import codec, open_plain
from recordmill.pipeline.sources.jsonl.fields import Shape
from recordmill.pipeline.sources.jsonl.parser import peek
from recordmill.pipeline.sources.lines import Lines, pieces

PEEKED_LINES = 1_000
PEEKED_BYTES = 1 << 20  # 1 MiB
SAMPLE_BYTES = 64 << 10  # 64 KiB: the number of rows is estimated from them
COMPRESSED_SAMPLE_BYTES = 4 << 20  # 4 MiB, decompressed: some blocks of bzip2, which are 900 KB each
COUNTED_BYTES = 1 << 20  # read at a time to count lines


def first_shape(files: Files, path: str) -> Shape:
    """Looks at what the objects in a file's first lines hold.

    Raises:
        SourceError: none of the lines is a JSON object, the file is one JSON array, or its compressed data is damaged.
        OSError: the file cannot be read.
    """
    with opened(files, path) as file:
        pieces_of_lines = map(Lines, pieces(file, 0, PEEKED_BYTES))
        first = list(islice((line for lines in pieces_of_lines for line in lines.each(lines.filled)), PEEKED_LINES))
    shape = peek(first)
    if shape.inner is None or (first[0].startswith(b"[") and not first[0].endswith(b"]")):
        hint = _hint(first, path)
        raise SourceError(f"{path} holds no JSON object in its first lines; each line must be one: {{…}}{hint}")
    return shape


def _hint(first: list[bytes], path: str) -> str:
    """The command that makes lines of a file that is one JSON array, or whose objects are spread over lines."""
    start = first[0][:1] if first else b""
    files = f"{quote(path)} > {quote(f'{posixpath.splitext(path)[0]}-lines.jsonl')}"
    if start == b"[":
        return f". It is one JSON array; to make lines of it: jq -c '.[]' {files}"
    return f". To make one line of each object: jq -c . {files}" if start == b"{" else ""


def estimated_rows(files: Files, path: str, total_bytes: int) -> int:
    """Estimates the rows of `total_bytes` of files that are compressed alike by the beginning of one; at least 1.

    Its mean line is that of its first 64 KiB, or of its first 4 MiB if it is compressed.

    Raises:
        SourceError: the compressed data is damaged.
        OSError: the file cannot be read.
    """
    with files.open(path) as file, _naming(path):
        if name := codec(path):
            plain = pa.CompressedInputStream(pa.PythonFile(file, "r"), name)
            sample, whole = plain.read(COMPRESSED_SAMPLE_BYTES), file.tell()
        else:
            sample = file.read(SAMPLE_BYTES)
            whole = sample.rfind(b"\n") + 1 or len(sample)  # one line, or the beginning of one
    return max(1, round(total_bytes * max(1, sample.count(b"\n")) / max(1, whole)))


def counted_rows(files: Files, paths: Iterable[str]) -> int:
    """Counts the lines of files, blank ones too; about 1 s a GB, decompressed.

    Raises:
        SourceError: compressed data is damaged.
        OSError: a file cannot be read.
    """
    rows = 0
    for path in paths:
        last = b"\n"
        with opened(files, path) as file:
            while block := file.read(COUNTED_BYTES):
                rows += block.count(b"\n")
                last = block[-1:]
        rows += last != b"\n"
    return rows


@contextmanager
def opened(files: Files, path: str) -> Iterator[BinaryIO]:
    """Opens a file, decompressed; it can be sought in only where it is not compressed.

    Raises:
        SourceError: the compressed data is damaged.
        OSError: the file cannot be read.
    """
    with open_plain(files, path) as file, _naming(path):
        yield file


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Makes an error of decompression one that names the file."""
    try:
        yield
    except OSError as error:
        if codec(path) is None:
            raise
        raise SourceError(f"{path} cannot be read as {codec(path)}: {error}; is it cut off or damaged?") from error
