"""Reads the features of one serialized `tf.train.Example`, whatever legal form it has, without copying what it holds.

A record as TensorFlow writes it is walked in one pass; any other, with unpacked or split lists, fields in another
order, repeated or unknown ones, is taken apart field by field. What protocol buffers merge is merged, the last of two
features of a name counts, and of two kinds of list in a feature the last.

>>> scan(memoryview(bytes.fromhex("0a100a0e0a056c6162656c12051a030a0107")), {b"label"})  # doctest: +SKIP
{b'label': (INTS, [memoryview(bytes([7]))])}
"""

from collections.abc import Collection
from typing import TypeAlias

from recordmill.pipeline.reader.parsing.varints import LONGEST, Malformed

BYTES, FLOATS, INTS = 0x0A, 0x12, 0x1A  # a feature's list: the tags of fields 1, 2, 3
FIRST, SECOND = 0x0A, 0x12  # the tags of fields 1 and 2 that have a length
_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_UNPACKED = {FLOATS: 8 | _FIXED32, INTS: 8 | _VARINT}
_DEEPEST = 100  # groups in groups, as protocol buffers allow

Chunks: TypeAlias = list[memoryview]
"""Of a list of bytes its values; of numbers packed pieces: varints, or little-endian float32, never cut inside one."""
Found: TypeAlias = dict[bytes, tuple[int, Chunks]]
"""By name the kind of a feature's list, BYTES, FLOATS or INTS, and what it holds."""


def scan(record: memoryview, names: Collection[bytes]) -> Found:
    """Gives the features of these names; one that is not there, or has no list, is left out.

    Raises:
        Malformed: the record is no Example; features of other names are looked at only as far as they must be.
    """
    found = _as_written(record, names)
    return _general(record, names) if found is None else found


def names_of(record: memoryview) -> list[bytes]:
    """The names of a record's features in their order. Raises: Malformed as `scan`."""
    entries = _entries_as_written(record)
    return [name for name, *_ in (_entries(record) if entries is None else entries)]


def _as_written(data: memoryview, names: Collection[bytes]) -> Found | None:
    """The features of a record as TensorFlow writes it; None for any other."""
    found: Found = {}
    entries = _entries_as_written(data)
    if entries is None or len({name for name, *_ in entries}) < len(entries):
        return None
    try:
        for name, value, stop in entries:
            if value < stop and name in names:
                chunks = _list_as_written(data, value, stop)
                if chunks is None:
                    return None
                found[name] = data[value], chunks
    except IndexError:
        return None
    return found


def _entries_as_written(data: memoryview) -> list[tuple[bytes, int, int]] | None:
    """Of each feature its name, and where its list begins and ends."""
    entries = []
    end = len(data)
    try:
        size, place = _length(data, 1)
        if data[0] != FIRST or place + size != end:
            return None
        while place < end:
            size, start = _length(data, place + 1)
            stop, after_name = start + size, start + 2 + data[start + 1]
            if stop > end or data[place] != FIRST or data[start] != FIRST or data[after_name] != SECOND:
                return None
            size, value = _length(data, after_name + 1)
            if value + size != stop:
                return None
            entries.append((bytes(data[start + 2 : after_name]), value, stop))
            place = stop
    except IndexError:
        return None
    return entries


def _list_as_written(data: memoryview, place: int, stop: int) -> Chunks | None:
    kind = data[place]
    size, place = _length(data, place + 1)
    if place + size != stop or kind not in (BYTES, FLOATS, INTS):
        return None
    chunks = []
    while place < stop:
        size, start = _length(data, place + 1)
        if data[place] != FIRST or start + size > stop or (kind != BYTES and start + size != stop):
            return None
        place = start + size
        chunks.append(data[start:place])
    return chunks


def _length(data: memoryview, place: int) -> tuple[int, int]:
    """A length, and the place after it; IndexError at the end of the data."""
    byte = data[place]
    if byte < 128:
        return byte, place + 1
    value, shift = byte & 127, 7
    while True:
        place += 1
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128 or shift > 28:  # longer ones lead beyond the data
            return value, place + 1
        shift += 7


def _general(data: memoryview, names: Collection[bytes]) -> Found:
    """The features of any record."""
    found: Found = {}
    for name, entry in _entries(data):
        if name in names:
            found.pop(name, None)
            kind, chunks = _feature(_joined(_lengthy(entry, SECOND)))
            if kind:
                found[name] = kind, chunks
    return found


def _entries(data: memoryview) -> list[tuple[bytes, memoryview]]:
    """The features in their order, not yet taken apart, with their names; a name that is not there is empty."""
    entries = [entry for features in _lengthy(data, FIRST) for entry in _lengthy(features, FIRST)]
    return [(bytes([memoryview(b""), *_lengthy(entry, FIRST)][-1]), entry) for entry in entries]


def _feature(feature: memoryview) -> tuple[int, Chunks]:
    """The kind of a feature's list, 0 for none, and what the list holds."""
    kind = 0
    bodies: Chunks = []
    for tag, body in fields(feature):
        if tag in (BYTES, FLOATS, INTS):
            bodies = [*bodies, body] if tag == kind else [body]
            kind = tag
    chunks = [body for tag, body in fields(_joined(bodies)) if tag in (FIRST, _UNPACKED.get(kind))]
    for chunk in chunks:
        if kind == FLOATS and len(chunk) % 4:
            raise Malformed(f"a list of floats has {len(chunk)} bytes, no multiple of 4")
        if kind == INTS and len(chunk) and chunk[-1] > 127:
            raise Malformed("a list of int64 ends inside a number")
    return kind, chunks


def _lengthy(message: memoryview, tag: int) -> Chunks:
    return [body for found, body in fields(message) if found == tag]


def _joined(parts: Chunks) -> memoryview:
    """Messages one after another are the message that they merge to."""
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def fields(data: memoryview) -> list[tuple[int, memoryview]]:
    """Gives a message's fields in their order: tag and content. Raises: Malformed if it is no message."""
    found, place, end = [], 0, len(data)
    while place < end:
        tag, start = _varint(data, place)
        if tag & 7 == _LENGTH:
            size, start = _varint(data, start)
            place = start + size
        else:
            place = _after(data, tag, start)
        if tag < 8 or place > end:
            raise Malformed(
                f"it is no tf.train.Example: field {tag >> 3} takes {place - start:,} bytes, {end - start:,} are left"
            )
        found.append((tag, data[start:place]))
    return found


def _after(data: memoryview, tag: int, place: int) -> int:
    """The place after the content of a field without a length."""
    match tag & 7:
        case 0:
            return _varint(data, place)[1]
        case 1:
            return place + 8
        case 5:
            return place + 4
        case 3:
            return _after_group(data, tag, place)
    raise Malformed(f"it is no tf.train.Example: a field of type {tag & 7}")


def _after_group(data: memoryview, tag: int, place: int) -> int:
    opened = [tag >> 3]
    while opened:
        tag, place = _varint(data, place)
        if tag & 7 == _GROUP:
            opened.append(tag >> 3)
        elif tag & 7 == _LENGTH:
            size, place = _varint(data, place)
            place += size
        elif tag & 7 != _GROUP_END:
            place = _after(data, tag, place)
        elif opened.pop() != tag >> 3:
            raise Malformed("it is no tf.train.Example: a group ends that did not begin")
        if len(opened) > _DEEPEST:
            raise Malformed(f"it is no tf.train.Example: groups in groups, more than {_DEEPEST}")
    return place


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[place : place + LONGEST]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value & (1 << 64) - 1, place + shift + 1
    raise Malformed("it is no tf.train.Example: it ends inside a number")
