"""Headers of a Parquet file's pages: what each holds once it is decompressed, read before Arrow decodes any.

A footer may lie about them, and pyarrow has no API for them. They are `PageHeader` in parquet.thrift, in Thrift's
compact protocol.

>>> [page.values for page in pages(file, start=4, values=1000)]  # doctest: +SKIP
[0, 1000]
"""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

HEADER_BYTES = 1 << 10  # 1 KiB: read at first; a header without statistics has about 30 bytes
MOST_HEADER_BYTES = 16 << 20  # 16 MiB, as Arrow reads at most
MOST_DEPTH = 8  # of a header's structs; Parquet's own lie in three
DICTIONARY_PAGE = 2
KIND, DECODED, STORED = 1, 2, 3
PARTS = {5: (1, 2), 7: (1, 2), 8: (1, 4)}
"""The number of values and the encoding, by the field: a data page's, a dictionary's, a data page's of version 2."""
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


class Page(NamedTuple):
    """A page, by its header."""

    is_dictionary: bool
    decoded: int
    """Its bytes, decompressed."""
    stored: int
    """Its bytes in the file."""
    values: int
    """The number of its values, or of what stands for them in nested columns: nulls and empty lists count too."""
    encoding: int
    """One of `Encoding` in parquet.thrift."""


def pages(file: BinaryIO, start: int, values: int) -> Iterator[Page]:
    """Reads the headers of a column chunk's pages, as far as Arrow will read it: until it has all `values`.

    Args:
        file: can seek.
        start: the byte of the first header.
        values: the number of values that the footer states.

    Raises:
        OSError: a header is damaged, or the file ends before its page does.
    """
    end, seen = file.seek(0, io.SEEK_END), 0
    if start < 0:
        raise OSError("a page's header lies outside of the file")
    while seen < values:
        page, length = _read(file, start)
        start += length + page.stored
        if min(page.decoded, page.stored, page.values) < 0 or start > end:
            raise OSError("a page's header is damaged, or the file is cut off")
        seen += 0 if page.is_dictionary else page.values
        yield page


def _read(file: BinaryIO, start: int) -> tuple[Page, int]:
    """Reads one header: what it states, and its own length in bytes."""
    size = HEADER_BYTES
    while True:
        file.seek(start)
        data = file.read(size)
        try:
            fields, length = _struct(data, 0, MOST_DEPTH)
            held: dict[int, Any] = next((fields[part] for part in PARTS if part in fields), {})
            count, encoding = next((PARTS[part] for part in PARTS if part in fields), (1, 2))
            is_dictionary = fields[KIND] == DICTIONARY_PAGE
            page = Page(is_dictionary, fields[DECODED], fields[STORED], held.get(count, 0), held.get(encoding, 0))
            return page, length
        except IndexError:
            if len(data) < size or size >= MOST_HEADER_BYTES:
                raise OSError("a page's header is cut off") from None
            size *= 16
        except (KeyError, ValueError, TypeError, AttributeError):
            raise OSError("a page's header is damaged") from None


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Reads a struct's fields by their numbers, and where it ends; of a list only where it ends."""
    fields, number = dict[int, Any](), 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind in (I16, I32, I64):
        return _signed(data, at)
    if kind == BINARY:
        length, at = _varint(data, at)
        return None, _within(data, at + length)
    if kind == STRUCT and depth:
        return _struct(data, at, depth - 1)
    if kind in (BYTE, DOUBLE):
        return None, _within(data, at + (1 if kind == BYTE else 8))
    raise ValueError(kind)  # no page's header holds a list, a set or a map


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError
    return at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")
