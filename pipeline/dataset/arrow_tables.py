"""Arrow files of a version, `inputs.arrow` and those of `summaries/`, read within bounds.

A compressed buffer states its size, so kilobytes may claim to be gigabytes. The sizes in each batch's header are summed
before the decompression, and the result is fully validated, since Arrow trusts lengths and offsets.
"""

import struct

import pyarrow as pa

from recordmill.pipeline.dataset.paths import ADVICE, Location
from recordmill.pipeline.errors import DatasetError, listed
from recordmill.pipeline.safe_text import cut

LEAST_BYTES = 64 << 20  # 64 MiB: allowed for every file, at any compression
MOST_TIMES = 32  # largest ratio for larger files; words, paths and digests compress to a third
MAGIC = b"ARROW1\0\0"  # the first bytes of a file around a stream, such as a Feather file
PLAIN = frozenset({"int32", "int64", "double", "string", "binary", "fixed_size_binary[32]"})
"""The types in a version's tables; others, such as dictionaries, expand when read."""
WORDS = pa.schema({"feature": pa.string(), "word": pa.binary(), "count": pa.int64()})
"""The columns of `summaries/vocabularies/`: the counts of words in the train split."""
LENGTH, BUFFERS, COMPRESSION = 0, 2, 3  # fields of a `RecordBatch` in Arrow's Message.fbs
HEADER = 2  # the field of a `Message` with the batch


def read_table(folder: Location, path: str, data: bytes, schema: pa.Schema | None = None) -> pa.Table:
    """Reads a table of plain columns, of `schema` or all, from the bytes of a file or a stream in a version's folder.

    Raises: DatasetError: it exceeds 64 MiB and 32 times the file's bytes, lacks a column, has one of another type, or
    is damaged.
    """
    try:
        stream = pa.py_buffer(data)[len(MAGIC) if data.startswith(MAGIC) else 0 :]
        reader = pa.ipc.MessageReader.open_stream(stream)
        found = pa.ipc.read_schema(_checked(reader.read_next_message(), "schema")).remove_metadata()
        wanted = found if schema is None else schema  # a later Recordmill may add columns
        is_there = all(each.name in found.names and found.field(each.name) == each for each in wanted)
        if not len(found) or not is_there or not PLAIN.issuperset(map(str, found.types)):
            raise DatasetError(f"has unexpected columns: {listed(found.names)}")
        most, total, batches = max(LEAST_BYTES, MOST_TIMES * len(data)), 0, list[pa.RecordBatch]()
        for message in iter(reader):
            total += _expanded(_checked(message, "record batch"))
            if total > most:
                raise DatasetError(f"expands {len(data):,} bytes to {total:,}, more than {most:,}")
            batch = pa.ipc.read_record_batch(message, found)
            batch.validate(full=True)
            batches.append(batch)
        return pa.Table.from_batches(batches, found).select(wanted.names)
    except DatasetError as error:
        raise DatasetError(f"{folder / path} {error}: {ADVICE}") from None
    except (pa.ArrowException, OSError, ValueError, StopIteration, struct.error) as error:
        told = cut(str(error).partition("\n")[0], 200)
        raise DatasetError(f"{folder / path} is broken ({told}): {ADVICE}") from None


def _checked(message: "pa.ipc.Message", kind: str) -> "pa.ipc.Message":
    """Refuses a message of another kind: Arrow would misread it, and access arbitrary memory."""
    if message.type != kind:
        raise ValueError(f"it has a message of kind {message.type}, expected a {kind}")
    return message


def _expanded(message: "pa.ipc.Message") -> int:
    """Counts a record batch's decompressed bytes plus one per row, from its header."""
    header, body = memoryview(message.metadata), memoryview(message.body)
    root = _at("<I", header, 0)
    batch = _followed(header, _field(header, root, HEADER))
    length = _field(header, batch, LENGTH)
    rows = _at("<q", header, length) if length else 0
    buffers = _followed(header, _field(header, batch, BUFFERS))
    is_packed = _field(header, batch, COMPRESSION) > 0
    total = max(rows, 0)
    for number in range(_at("<I", header, buffers)):
        offset, size = struct.unpack_from("<qq", header, buffers + 4 + 16 * number)
        stated = _at("<q", body, offset) if is_packed and size else size
        total += size if stated == -1 else max(stated, 0)  # -1: an uncompressed buffer
    return total


def _field(header: memoryview, table: int, number: int) -> int:
    """Returns a field's offset in a flatbuffer's table; 0 if missing."""
    fields = table - _at("<i", header, table)
    known = (_at("<H", header, fields) - 4) // 2
    offset = _at("<H", header, fields + 4 + 2 * number) if number < known else 0
    return table + offset if offset else 0


def _followed(header: memoryview, place: int) -> int:
    if not place:
        raise ValueError("a header lacks a field")
    return place + _at("<I", header, place)


def _at(form: str, data: memoryview, place: int) -> int:
    if place < 0:
        raise ValueError("a header leads outside")
    return int(struct.unpack_from(form, data, place)[0])
