"""Steps that jobs share, and a probe: a tiny job that tells whether workers reach the workspace and the output.

A step takes the rows of one bucket, as one table. On the local runner the rows are in scratch files, and only names are
shuffled (`worker.packing`). Every step leaves its `UserError` in the workspace, where the driver reads it.

    pipeline | ListChunks(workspace, chunks) | ParDo(WorkerStep(planned, make))   # make()(chunk) -> elements
    rows | GroupByKey() | ParDo(Send(planned, step, to)) # step(table) -> table, to(table) -> table with `BUCKET`
    rows | GroupByKey() | ParDo(Keep(planned, write))   # write(planned, bucket, table) -> anything small
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.context.build_context import BUCKET_ROWS, ChunkPages, PlannedBuild
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.duplicates.fingerprints import BUCKET
from recordmill.pipeline.build.worker.packing import Packed, pack, unpack
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.open_store import is_local

Bucket = tuple[int, Packed | Iterable[Packed]]
TableStep = Callable[[pa.Table], pa.Table]
QUESTION, ANSWER = "probe/driver", "probe/worker"
TEMP = "give a gs:// URL, or a network folder under one path on every machine; TensorFlow opens no s3:// or hdfs://"


class Composite(beam.PTransform):  # type: ignore[misc]
    """A transform of parts that a function adds; unlike `beam.ptransform_fn`, keeps its arguments out of the graph."""

    def __init__(self, add: Callable[..., Any], *arguments: Any) -> None:
        super().__init__()
        self._add, self._arguments = add, arguments

    def expand(self, values: Any) -> Any:
        return self._add(values, *self._arguments)


def composite(add: Callable[..., Any]) -> Callable[..., Composite]:
    """Makes a transform of a function of its input and of other arguments."""
    return partial(Composite, add)


@composite
def ListChunks(begin: beam.pvalue.PBegin, workspace: Store, chunks: Sequence[Chunk]) -> beam.PCollection:
    """Spreads chunks over the workers: the graph holds their number, the workers read them from the workspace."""
    pages = ChunkPages.write(workspace, chunks)
    count = len(pages)
    positions = begin | "Begin" >> beam.Impulse() | "NumberChunks" >> beam.FlatMap(lambda _: range(count))
    if count > 1:
        positions |= "SpreadChunks" >> beam.Reshuffle()
    return positions | "ReadPages" >> beam.Map(partial(read_chunk, pages))


def read_chunk(pages: ChunkPages, position: int) -> Chunk:
    """Reads a chunk in a worker."""
    with leaving_error(pages.workspace):
        return pages.read(position)


class Step(beam.DoFn):  # type: ignore[misc]
    """Yields the results of a function of an element and of side inputs."""

    def __init__(self, planned: PlannedBuild, function: Callable[..., Any]) -> None:
        self._planned, self._function = planned, function

    def process(self, element: Any, *sides: Any) -> Iterator[Any]:
        with leaving_error(self._planned.workspace):
            yield from self._function(element, *sides)


class WorkerStep(Step):
    """Lets each worker make the function after it loads the user's code: sources may be the user's own."""

    def __init__(self, planned: PlannedBuild, make: Callable[[], Callable[..., Iterable[Any]]]) -> None:
        self._planned, self._make = planned, make

    def setup(self) -> None:
        install_user_code(self._planned)
        self._function = self._make()


class Send(Step):
    """Makes rows from those of a bucket, and sends them to the buckets that it or `to` adds, by default the same."""

    def __init__(self, planned: PlannedBuild, function: Callable[..., Any], to: TableStep | None = None) -> None:
        super().__init__(planned, function)
        self._to = to

    def process(self, element: Bucket, *sides: Any) -> Iterator[tuple[int, Packed]]:
        with leaving_error(self._planned.workspace):
            table = self._function(rows_of(element[1]), *sides)
            if self._to is not None:
                table = self._to(table)
            if BUCKET not in table.column_names:
                table = table.append_column(BUCKET, pa.array(np.full(table.num_rows, element[0])))
            yield from send(self._planned, table)


class Gather(Step):
    """Sends tables with `BUCKET` that a function yields of an element; those of a bundle's small ones together."""

    def start_bundle(self) -> None:
        self._tables, self._rows = list[pa.Table](), 0

    def process(self, element: Any) -> Iterator[tuple[int, Packed]]:
        with leaving_error(self._planned.workspace):
            for table in self._function(element):
                self._tables.append(table)
                self._rows += table.num_rows
            if self._rows >= BUCKET_ROWS:
                yield from self._send()

    def finish_bundle(self) -> Iterator[Any]:
        with leaving_error(self._planned.workspace):
            for element in self._send():
                yield beam.transforms.window.GlobalWindows.windowed_value(element)

    def _send(self) -> Iterator[tuple[int, Packed]]:
        tables = self._tables
        self.start_bundle()
        return pack(tables, None if self._planned.inline else self._planned.scratch)


class Keep(Step):
    """Lets a function write files from a bucket into the workspace; yields its return value."""

    def process(self, element: Bucket, *sides: Any) -> Iterator[Any]:
        with leaving_error(self._planned.workspace):
            yield self._function(self._planned, element[0], rows_of(element[1]), *sides)


def send(planned: PlannedBuild, table: pa.Table) -> Iterator[tuple[int, Packed]]:
    """Packs rows by their buckets."""
    return pack([table], None if planned.inline else planned.scratch)


def rows_of(packed: Packed | Iterable[Packed]) -> pa.Table:
    """Reads the rows of a bucket."""
    return unpack([packed] if isinstance(packed, Packed) else packed).drop_columns([BUCKET])


class UnreachableError(UserError):
    """The workers do not reach the driver's files."""


def probe_workers(planned: PlannedBuild, runner: Runner) -> None:
    """Has a worker answer a token in the workspace and the shards' folder. Raises: UnreachableError: it does not."""
    token, folders = secrets.token_bytes(16), (planned.workspace, planned.shards)
    for folder in folders:
        folder.write(QUESTION, token)
    with runner.pipeline(planned) as pipeline:
        _ = pipeline | "Token" >> beam.Create([token]) | "AnswerFromWorker" >> beam.Map(answer, folders)
    unreached = [folder for folder in folders if folder.read(ANSWER) != token]
    for folder in folders:
        folder.delete(QUESTION)
        folder.delete(ANSWER)
    for url in (folder.url for folder in unreached):
        remedy = (
            "this machine does: give them the same credentials and endpoint in their environment, and install "
            "recordmill[aws] or recordmill[gcp] there"
        )
        if is_local(url):
            remedy = (
                "a folder of this machine: give an --output that they all reach, such as s3://bucket/folder or "
                "gs://bucket/folder, or a network folder under one path on every machine"
            )
        raise UnreachableError(f"the workers do not reach {url}, {remedy}")


def answer(token: bytes, folders: Sequence[Store]) -> None:
    """Answers in a worker, in each folder with the driver's token; the driver reports a missing answer."""
    for folder in folders:
        with suppress(OSError, UserError):
            if folder.read(QUESTION) == token:
                folder.write(ANSWER, token)


def probe_temp(planned: PlannedBuild, temp: str, runner: Runner) -> None:
    """Has a worker answer a token in TensorFlow's own files. Raises: UnreachableError: it, or the driver, cannot."""
    token, question = secrets.token_hex(16), f"{temp.rstrip('/')}/{attempt_name('probe')}"
    try:
        tf.io.gfile.makedirs(temp)
        with tf.io.gfile.GFile(question, "w") as file:
            file.write(token)
        with runner.pipeline(planned) as pipeline:
            _ = pipeline | "Token" >> beam.Create([token]) | "AnswerFromWorker" >> beam.Map(answer_temp, question)
        answered = tf.io.gfile.exists(f"{question}-answer")
        for name in filter(tf.io.gfile.exists, (question, f"{question}-answer")):
            tf.io.gfile.remove(name)
    except (tf.errors.OpError, OSError) as error:
        raise UnreachableError(f"--temp {temp} cannot be written by TensorFlow: {error}; {TEMP}") from None
    if not answered:
        raise UnreachableError(f"the workers do not reach --temp {temp} with TensorFlow's own files: {TEMP}")


def answer_temp(token: str, question: str) -> None:
    """Answers in a worker that reads the driver's token."""
    with suppress(tf.errors.OpError, OSError), tf.io.gfile.GFile(question) as file:
        if file.read() == token:
            with tf.io.gfile.GFile(f"{question}-answer", "w") as answered:
                answered.write(token)
