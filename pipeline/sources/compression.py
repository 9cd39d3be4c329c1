"""Compressed files, by the endings of their names: gzip, Zstandard, bzip2."""

import posixpath
from typing import BinaryIO, cast

import pyarrow as pa

from recordmill.pipeline.sources.base import Files

CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""The codec of a file by its ending, in any case."""


def codec(path: str) -> str | None:
    """The codec of a file; None where it is not compressed."""
    return CODECS.get(posixpath.splitext(path)[1].lower())


def uncompressed_name(path: str) -> str:
    """The name without the ending of its compression: `rows.csv` of `rows.csv.gz`."""
    return posixpath.splitext(path)[0] if codec(path) else path


def open_plain(files: Files, path: str) -> BinaryIO:
    """Opens a file for reading, decompressed; a compressed one can only be read from its start.

    Raises:
        OSError: it is missing or unreadable; also later, when damaged data is read.
    """
    file, name = files.open(path), codec(path)
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, "r"), name)) if name else file
