r"""The fields of any protocol buffer, one level deep, without its description.

>>> [(tag >> 3, bytes(content)) for tag, content in fields(memoryview(b"\x0a\x02hi\x10\x05"))]
[(1, b'hi'), (2, b'\x05')]
"""

from recordmill.pipeline.reader.parsing.varints import LONGEST, Malformed


def fields(data: memoryview) -> list[tuple[int, memoryview]]:
    """Gives a message's fields in their order: tag and content. Raises: Malformed if it is no message."""
    result, offset, end = [], 0, len(data)
    while offset < end:
        tag, start = _varint(data, offset)
        match tag & 7:
            case 0:
                offset = _varint(data, start)[1]
            case 1:
                offset = start + 8
            case 2:
                size, start = _varint(data, start)
                offset = start + size
            case 5:
                offset = start + 4
            case other:  # groups, 3 and 4, are long out of use
                raise Malformed(f"it is no protocol buffer: a field of type {other}")
        if tag < 8 or offset > end:
            left = f"takes {offset - start:,} bytes, {end - start:,} are left"
            raise Malformed(f"it is no protocol buffer: field {tag >> 3} {left}")
        result.append((tag, data[start:offset]))
    return result


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """A number, and the offset after it."""
    value = 0
    for shift, byte in enumerate(data[offset : offset + LONGEST]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value & (1 << 64) - 1, offset + shift + 1
    raise Malformed("it is no protocol buffer: it ends inside a number")
