"""Compressed files, by the endings of their names: gzip, Zstandard, bzip2."""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from recordmill.pipeline.sources.base import Files, SourceError

CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""The codec of a file by its ending, in any case."""


def codec(path: str) -> str | None:
    """The codec of a file; None where it is not compressed."""
    return CODECS.get(posixpath.splitext(path)[1].lower())


def uncompressed_name(path: str) -> str:
    """The name without the ending of its compression: `rows.csv` of `rows.csv.gz`."""
    return posixpath.splitext(path)[0] if codec(path) else path


@contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Makes an error of decompression one that names the file.

    Raises:
        SourceError: the compressed data is damaged.
        OSError: a file that is not compressed cannot be read.
    """
    try:
        yield
    except OSError as error:
        if codec(path) is None:
            raise
        raise SourceError(f"{path} cannot be read as {codec(path)}: {error}; is it cut off or damaged?") from error


def open_plain(files: Files, path: str) -> BinaryIO:
    """Opens a file for reading, decompressed; a compressed one can only be read from its start.

    Raises:
        OSError: it is missing or unreadable; also later, when damaged data is read.
    """
    file, name = files.open(path), codec(path)
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, "r"), name)) if name else file
