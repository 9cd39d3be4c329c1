"""The content of a row, by which rows are compared: 16 bytes of SHA-256; and the files of such digests.

The content is all images (`image`, `image_sequence`; the bytes of their files in the source) and texts (`text`; their
UTF-8) of a row together: an image with another caption is another content. A row without images whose texts are empty
equals no other. In a dataset without images and texts, all raw columns except those of the key are the content.

A file of contents is an Arrow file: for each row `key`, `hash` and `sample` (the position and sample hashes of its
key), `split`, `digest` (zeros for a row that equals no other), `looks` if images are compared, and `row`, its number
(`duplicates.fingerprints`). There is one for each chunk that a placement look reads, and for each shard.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.arrow_files import write_table
from recordmill.pipeline.build.context.row_schema import RowSchema
from recordmill.pipeline.build.context.steps import shard_step
from recordmill.pipeline.build.context.workspace import Workspace
from recordmill.pipeline.build.duplicates.fingerprints import numbered
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.contract.kinds.text import TextOptions

SHARD_CONTENTS = "digests/shards"
"""The folder of the contents of shards."""
DIGEST, LOOK = 16, 16  # bytes
NONE = bytes(DIGEST)


def content_features(features: Mapping[str, FeatureOptions], form: RowSchema) -> list[str]:
    """The features whose columns are the content; the first of several that read one column alike."""
    named = [name for name in form.features if isinstance(features[name], ImageOptions | TextOptions)]
    key = set(form.key or ()) | {form.content_key}
    chosen = named or [name for name, column in form.features.items() if column not in key]
    first = {(form.features[name], _kept(features[name])): name for name in reversed(chosen)}
    return [name for name in chosen if name in first.values()]


def _kept(options: FeatureOptions) -> int | None:
    """The number of images of a sequence that are read; None for other kinds."""
    return options.max_length if isinstance(options, ImageOptions) else None


def digest_rows(rows: pa.Table, names: Sequence[str], images: Mapping[str, Sequence[bytes]]) -> list[bytes]:
    """The contents' digests of keyed rows.

    Args:
        rows: keyed rows.
        names: the features that are the content.
        images: for each feature of images, the joined SHA-256 digests of each row's files.
    """
    parts = [images[name] if name in images else _values(rows[name]) for name in names]
    if len(parts) == 1:
        return [_digest(part) if part else NONE for part in parts[0]]
    return [_digest(b"".join(map(_sized, row))) if any(row) else NONE for row in zip(*parts, strict=True)]


def file_digests(files: Iterable[bytes]) -> bytes:
    """The SHA-256 digests of a row's files, one after another."""
    return b"".join(hashlib.sha256(data).digest() for data in files)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:DIGEST]


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part


def _values(column: pa.ChunkedArray) -> Sequence[bytes]:
    """A column's values as bytes: numbers in the machine's form, the values of a list one after another."""
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
    """The rows of a file of contents; `looks` are the perceptual hashes of the images that are compared so."""
    columns = {
        "key": rows["@key"],
        "hash": rows["@hash"],
        "sample": rows["@sample"],
        "split": rows["@split"].cast(pa.int16()),
        "digest": _fixed(b"".join(digests), DIGEST),
    }
    if looks:
        joined = b"".join(chain.from_iterable(zip(*looks.values(), strict=True)))
        columns["looks"] = _fixed(joined, LOOK * len(looks))
    return pa.table(columns)


def _fixed(data: bytes, width: int) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(data) // width, [None, pa.py_buffer(data)])


def write_contents(workspace: Workspace, group: int, tables: Sequence[pa.Table]) -> None:
    """Writes the contents of a shard's records, if there are any."""
    table = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})  # not a batch for each few rows
    if table.num_rows:
        rows = pa.array(numbered(group, np.arange(table.num_rows)))
        write_table(workspace, f"{SHARD_CONTENTS}/{shard_step(group)}.arrow", table.append_column("row", rows))
