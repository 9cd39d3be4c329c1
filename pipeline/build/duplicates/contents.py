"""The content of a row, by which rows are compared: 16 bytes of SHA-256; and the files of such digests.

The content is all images (`image`, `image_sequence`; the bytes of their files in the source) and texts (`text`; their
UTF-8) of a row together: an image with another caption is another content. A row without images whose texts are empty
equals no other. In a dataset without images and texts, all raw columns except those of the key are the content.

A file of contents is an Arrow file: for each row `place` (the position and sample hashes of its key, 16 bytes), `key`,
`split`, `digest` (zeros for a row that equals no other), and `looks` if images are compared.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.arrow_files import read_table, write_table
from recordmill.pipeline.build.context.row_schema import RowSchema
from recordmill.pipeline.build.duplicates.clusters import Numbers, Rows
from recordmill.pipeline.dataset.atomic_files import attempt_name
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.contract.kinds.text import TextOptions

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
    hashes = np.stack([rows[name].to_numpy() for name in ("@hash", "@sample")], axis=1)
    columns = {
        "place": _fixed(hashes.astype(">u8").tobytes(), DIGEST),
        "key": rows["@key"],
        "split": rows["@split"].cast(pa.int16()),
        "digest": _fixed(b"".join(digests), DIGEST),
    }
    if looks:
        joined = b"".join(chain.from_iterable(zip(*looks.values(), strict=True)))
        columns["looks"] = _fixed(joined, LOOK * len(looks))
    return pa.table(columns)


def _fixed(data: bytes, width: int) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(data) // width, [None, pa.py_buffer(data)])


def write_contents(folder: str, step: str, tables: Sequence[pa.Table]) -> str | None:
    """Writes a step's contents under a name of this attempt's own; returns the name, None if there are no rows."""
    if not any(table.num_rows for table in tables):
        return None
    name = f"{attempt_name(step)}.arrow"
    write_table(os.path.join(folder, name), pa.concat_tables(tables).combine_chunks())  # not a batch for each few rows
    return name


@dataclass(frozen=True)
class Contents:
    """Files of contents, read column by column, a file at a time; rows are numbered through."""

    paths: Sequence[str]

    @cached_property
    def counts(self) -> list[int]:
        """The rows of each file."""
        return [read_table(path).num_rows for path in self.paths]

    @cached_property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.counts)

    def numbers(self, column: str) -> Iterator[Numbers]:
        """A column of digests or looks, file by file: uint64 [rows, width / 8]."""
        for table in self._tables(column):
            yield as_numbers(table[column])

    def places_in_splits(self) -> Iterator[Numbers]:
        """The keys' hashes as `numbers` gives them, made distinct by split, since keys are compared inside a split."""
        for numbers, table in zip(self.numbers("place"), self._tables("split"), strict=True):
            places = numbers.copy()
            places[:, 0] ^= table["split"].to_numpy().astype(np.uint64) << np.uint64(48)
            yield places

    def take(self, column: str, rows: Rows) -> pa.ChunkedArray:
        """A column's values in some rows, in their order."""
        order = np.argsort(rows)
        rising = rows[order]
        taken, first = [], 0
        for table in self._tables(column):
            chosen = rising[slice(*np.searchsorted(rising, [first, first + table.num_rows]))]
            taken.append(table[column].take(pa.array(chosen - first)))
            first += table.num_rows
        chunks = [chunk for part in taken for chunk in part.chunks]
        return pa.chunked_array(chunks, taken[0].type).take(pa.array(np.argsort(order)))

    def _tables(self, column: str) -> Iterator[pa.Table]:
        for path, count in zip(self.paths, self.counts, strict=True):
            if count:
                yield read_table(path, column)


def as_numbers(column: pa.ChunkedArray) -> Numbers:
    """A column of bytes of one width, a multiple of 8, as uint64 [rows, width / 8]."""
    whole = column.combine_chunks()
    width = whole.type.byte_width // 8
    numbers = np.frombuffer(whole.buffers()[1], ">u8").astype(np.uint64).reshape(-1, width)
    return numbers[whole.offset : whole.offset + len(whole)]
