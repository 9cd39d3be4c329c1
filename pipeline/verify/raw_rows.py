"""Samples the sources' rows as a serving client has them: the same rows each time, from a few chunks.

>>> batch = sample_rows(plan, work, 64)  # doctest: +SKIP
>>> batch.rows.num_rows                  # doctest: +SKIP
64
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.images.read import kept, pictures_of
from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.sources.base import Chunk
from recordmill.transforms.tensorflow.image import ImageError

CHUNKS = 8  # of some 8 MiB, so that a sample takes a second of a source of any size


class RawRows(NamedTuple):
    """Rows in the form that the serving model takes."""

    keys: list[bytes]
    columns: dict[str, list[Any]]
    """By feature: each row's value or list of values; an image's value is its bytes."""

    def keep(self, rows: Sequence[int]) -> "RawRows":
        """Keeps the rows at these positions."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return RawRows([self.keys[row] for row in rows], columns)

    def tensor(self, name: str, spec: tf.TypeSpec) -> Any:
        """A feature's values, of shape [rows] or ragged [rows, None]."""
        values = self.columns[name]
        if not isinstance(spec, tf.RaggedTensorSpec):
            return tf.constant(values, spec.dtype, shape=[len(values)])
        flat = list(chain.from_iterable(values))
        return tf.RaggedTensor.from_row_lengths(tf.constant(flat, spec.dtype, shape=[len(flat)]), [*map(len, values)])


def sample_rows(plan: BuildPlan, work: PlannedBuild, count: int) -> RawRows | None:
    """Gives rows with their images: those with the smallest sample hash in the chunks that a hash chooses.

    Args:
        plan: of the build; its chunks are read.
        work: with `inline`, so that images inside rows stay there.
        count: the largest number of rows.

    Returns:
        the rows without those that a build would reject; fewer if there are no more, None if there are none.
    """
    chosen = sorted(plan.chunks, key=lambda chunk: hashlib.sha256(b"%d" % chunk.index).digest())[:CHUNKS]
    least: pa.Table | None = None
    for rows in (rows for chunk in chosen for rows in _read(work, chunk)):
        both = rows if least is None else pa.concat_tables([least, rows])
        least = both.sort_by([("@sample", "ascending"), ("@key", "ascending")]).slice(0, count).combine_chunks()
    return None if least is None or not least.num_rows else _with_pictures(work, least)


def _read(work: PlannedBuild, chunk: Chunk) -> Iterator[pa.Table]:
    pictures, source = pictures_of(work), work.sources[chunk.source]
    for block in source.read(chunk, work.files, work.schema.columns, work.schema.source_key):
        yield key_rows(block, chunk, work.schema, work.layout, pictures.read)[0]


def _with_pictures(work: PlannedBuild, rows: pa.Table) -> RawRows:
    columns = {name: rows[name].to_pylist() for name in work.schema.features}
    loader, sources, good = pictures_of(work), rows["@source"].to_pylist(), set(range(rows.num_rows))
    for name, options in work.images().items():
        for row, references in enumerate(columns[name]):
            try:
                data = [loader.load(sources[row], image, options).data for image in kept(references, options)]
            except ImageError:
                good.discard(row)  # a reject, or unreadable now: nothing to compare
                continue
            columns[name][row] = data if isinstance(references, list) else b"".join(data)
    return RawRows(rows["@key"].to_pylist(), columns).keep(sorted(good))
