"""TFRecord files of another program: Examples on the wire, framed, in folders of a test."""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import google_crc32c

from tests.published import example

Row = Mapping[str, Any]


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def write(path: Path, rows: Iterable[Row | bytes]) -> Path:
    """Writes a file of Examples; bytes are a record as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(framed(row if isinstance(row, bytes) else example(row)) for row in rows))
    return path


def row(number: int) -> dict[str, Any]:
    return {"id": number, "label": number % 3, "text": b"number %d" % number, "size": number / 4}


def write_some(folder: Path, files: int = 3, records: int = 20, name: str = "train") -> list[Path]:
    """Writes some files of `row`s, numbered through."""
    return [
        write(
            folder / f"{name}-{file:05d}-of-{files:05d}.tfrecord", map(row, range(file * records, (file + 1) * records))
        )
        for file in range(files)
    ]
