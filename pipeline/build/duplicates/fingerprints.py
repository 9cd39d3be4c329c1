"""Contents of rows, by which rows are compared, and their fingerprints: a few numbers each.

A row's content is all its features of the kinds that are content (`Feature.is_content`) together, images as their
source files' bytes; without such kinds, all raw columns but the key's. A row with empty content equals no other.

A contents file is an Arrow file of the rows of a chunk read by a placement look, or of a shard: `key`, `hash` and
`sample` (the key's hashes), `split`, `digest` (16 bytes of SHA-256; zeros: equals no other), `looks` and `row`.
Fingerprints are compared bucket by bucket, so no process holds them all; the result depends neither on the number of
buckets nor on the order of rows. Each use needs some of these columns:

    row             int64: the number of its chunk or shard, and its position there
    split           int16: the index of its split in the spec's `splits`
    high, low       uint64: the content; both 0 for a row that equals no other
    hash, sample    uint64: the key's hashes, which decide the first row of several
    unit            uint64: the hash that decides its split: the key's, or the group's
    looks           perceptual hashes, if images are compared by them
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context import arrow_files, reports
from recordmill.pipeline.build.context.build_context import RowSchema
from recordmill.pipeline.dataset.placement import shard_of
from recordmill.pipeline.versions.stores.base import Store
from recordmill.transforms.base.feature import Feature

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
SHARD_CONTENTS = "digests/shards"  # folder
DIGEST, LOOK = 16, 16  # bytes
NONE = bytes(DIGEST)
POSITION_BITS = 40
BUCKET = "@group"  # the column with each row's bucket (`worker.packing`)


def content_features(features: Mapping[str, Feature], schema: RowSchema) -> list[str]:
    """Lists the content features; of several that read one column alike, the first."""
    named = [name for name in schema.features if features[name].is_content]
    key = set(schema.key or ()) | {schema.content_key}
    chosen = named or [name for name, column in schema.features.items() if column not in key]
    most = {name: getattr(each, "max_length", None) for name, each in features.items() if each.is_image}  # of a list
    first = {(schema.features[name], most.get(name)): name for name in reversed(chosen)}
    return [name for name in chosen if name in first.values()]


def digest_rows(rows: pa.Table, names: Sequence[str], images: Mapping[str, Sequence[bytes]]) -> list[bytes]:
    """Digests features of keyed rows; `images` holds each row's joined SHA-256 of image files, by feature."""
    parts = [images[name] if name in images else _values(rows[name]) for name in names]
    if not parts:  # all features are the key's
        return [NONE] * rows.num_rows
    if len(parts) == 1:
        return [_digest(part) if part else NONE for part in parts[0]]
    return [_digest(b"".join(map(_sized, row))) if any(row) else NONE for row in zip(*parts, strict=True)]


def file_digests(files: Iterable[bytes]) -> bytes:
    """Joins the SHA-256 digests of a row's files."""
    return b"".join(hashlib.sha256(data).digest() for data in files)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:DIGEST]


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part


def _values(column: pa.ChunkedArray) -> Sequence[bytes]:
    """Returns a column's values as bytes: numbers in native form, lists concatenated."""
    if column.type == pa.binary():
        return column.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_list(column.type):
        values = _values(pc.list_flatten(column))
        ends = np.cumsum(pc.list_value_length(column).to_numpy()).tolist()
        return [b"".join(map(_sized, values[start:end])) for start, end in zip([0, *ends], ends, strict=False)]
    width = column.type.bit_width // 8
    data = column.to_numpy().tobytes()
    return [data[start : start + width] for start in range(0, len(data), width)]


def content_table(rows: pa.Table, digests: Sequence[bytes], looks: Mapping[str, Sequence[bytes]]) -> pa.Table:
    """Makes the table of a contents file, without `row`; `looks` are perceptual hashes by feature."""
    columns = {name: rows[f"@{name}"] for name in ("key", "hash", "sample")}
    columns["split"] = rows["@split"].cast(pa.int16())
    columns["digest"] = _fixed(b"".join(digests), DIGEST)
    if looks:
        joined = b"".join(look for row in zip(*looks.values(), strict=True) for look in row)
        columns["looks"] = _fixed(joined, LOOK * len(looks))
    return pa.table(columns)


def _fixed(data: bytes, width: int) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(data) // width, [None, pa.py_buffer(data)])


def write_contents(workspace: Store, group: int, tables: Sequence[pa.Table]) -> None:
    """Writes the contents of a shard's records, if any."""
    table = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})  # not many small batches
    if table.num_rows:
        table = table.append_column("row", pa.array(numbered(group, np.arange(table.num_rows))))
        arrow_files.write_table(workspace, f"{SHARD_CONTENTS}/{reports.shard_step(group)}.arrow", table)


def contents_of_shard(workspace: Store, group: int) -> pa.Table | None:
    """Reads the contents of a shard's records, if any."""
    return arrow_files.read_table(workspace, f"{SHARD_CONTENTS}/{reports.shard_step(group)}.arrow")


def fingerprints(contents: pa.Table, *columns: str, near: bool = False) -> pa.Table:
    """Makes fingerprints from a contents file's table with `row`; with `near`, compares images by look, if any."""
    digests = as_numbers(contents["digest"])
    kept = ["row", "split", *columns]
    if near:
        looks = contents["looks"].combine_chunks()
        seen = as_numbers(contents["looks"])[:, ::2].all(axis=1)
        joined = b"".join(_digest(look) for look in looks.to_pylist())
        of_looks = np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)
        digests, kept = np.where(seen.reshape(-1, 1), of_looks, digests), [*kept, "looks"]
    table = contents.select(kept)
    return table.append_column("high", pa.array(digests[:, 0])).append_column("low", pa.array(digests[:, 1]))


def numbered(file: int, positions: Rows) -> Rows:
    """Numbers a file's rows by position, below 2**40; numbers rise with file and position."""
    return np.int64(file << POSITION_BITS) | positions.astype(np.int64)


def parts_of(rows: Rows) -> tuple[Rows, Rows]:
    """Splits row numbers into files and positions."""
    return rows >> POSITION_BITS, rows & ((1 << POSITION_BITS) - 1)


def values(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Returns a column as an array."""
    return table[name].to_numpy()


def pairs(table: pa.Table, first: str, second: str) -> Numbers:
    """Stacks two columns, uint64 [rows, 2]."""
    return np.stack([values(table, first), values(table, second)], axis=1).astype(np.uint64)


def replaced(table: pa.Table, name: str, column: npt.NDArray[Any]) -> pa.Table:
    """Replaces a column."""
    return table.set_column(table.schema.get_field_index(name), name, pa.array(column))


def look_up(
    keys: npt.NDArray[Any], results: npt.NDArray[Any], wanted: npt.NDArray[Any], default: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Looks wanted keys up among sorted keys; returns their results, or defaults for missing keys."""
    if not len(keys):
        return default
    nearest = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[nearest] == wanted, results[nearest], default)


def by_hash(table: pa.Table, column: str, buckets: int, first: int = 0) -> pa.Table:
    """Adds each row's bucket by a uniform hash: equal ranges, in order."""
    return table.append_column(BUCKET, pa.array(first + shard_of(values(table, column), buckets)))


def to_one(table: pa.Table) -> pa.Table:
    """Puts all rows into one bucket."""
    return table.append_column(BUCKET, pa.array(np.zeros(table.num_rows, np.int64)))


def as_numbers(column: pa.ChunkedArray) -> Numbers:
    """Reads a column of fixed-width bytes, a multiple of 8, as big-endian uint64 [rows, width / 8]."""
    whole = column.combine_chunks()
    width = whole.type.byte_width // 8
    numbers = np.frombuffer(whole.buffers()[1], ">u8").astype(np.uint64).reshape(-1, width)
    return numbers[whole.offset : whole.offset + len(whole)]
