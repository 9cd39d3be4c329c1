"""A look at all rows as one Beam job, before the job that writes them (`pipeline.build.summaries`).

chunks ─ LookAtChunks ─▶ (bucket, sums) ─ GroupByBucket ─▶ MergeBuckets ─▶ files
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from recordmill.pipeline.build.beam.list_chunks import ListChunks
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.context.failures import leaving_error
from recordmill.pipeline.build.summaries.look import Look, PartialSums, Sums
from recordmill.pipeline.build.worker.look_chunk import LookReader
from recordmill.pipeline.build.worker.user_code import install_user_code
from recordmill.pipeline.sources.source_reader import Chunk


def run_look(look: Look, chunks: Sequence[Chunk], runner: Runner) -> Sums:
    """Looks at all chunks; returns the reduced buckets. No look where nothing is looked for, or it has ended already.

    Raises:
        UserError: a worker failed.
    """
    done = look.read_done() if look.summaries else {}
    if done is None:
        with runner.pipeline(look.planned) as pipeline:
            sums = (
                pipeline
                | "ListChunks" >> ListChunks(look.planned.workspace, chunks)
                | "LookAtChunks" >> beam.ParDo(LookAtChunks(look))
                | "GroupByBucket" >> beam.GroupByKey()
            )
            if look.planned.has_spans:
                _add_up_spans(sums, look)
            else:
                _ = sums | "MergeBuckets" >> beam.ParDo(MergeBuckets(look))
        done = look.finish()
    return done


def _add_up_spans(sums: beam.PCollection, look: Look) -> None:
    """Adds up the buckets of each span, then those of all spans."""
    read = sums | "MergeSpans" >> beam.ParDo(MergeSpans(look))
    kept = [(key, None) for key in look.kept.keys()] if look.kept else []  # noqa: SIM118 - no mapping
    _ = (
        [read, sums.pipeline | "ListKept" >> beam.Create(kept)]
        | "AllSpans" >> beam.Flatten()
        | "GroupBySummary" >> beam.GroupByKey()
        | "AddUpSpans" >> beam.ParDo(AddUpSpans(look))
    )


class LookAtChunks(beam.DoFn):  # type: ignore[misc]
    """`pipeline.build.worker.look_chunk.LookReader` on Beam, which passes on the sums of many chunks together."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def setup(self) -> None:
        """Makes the worker's reader; sources may be the user's own."""
        install_user_code(self._look.planned)
        self._reader = LookReader(self._look)

    def start_bundle(self) -> None:
        """Begins empty."""
        self._sums = PartialSums(self._look.summaries)

    def process(self, chunk: Chunk) -> Iterator[tuple[str, bytes]]:
        """Adds a chunk."""
        with leaving_error(self._look.planned.workspace):
            yield from self._sums.add(self._reader.read(chunk), self._look.planned.spans[chunk.source])

    def finish_bundle(self) -> Iterator[Any]:
        """Yields what is left."""
        for element in self._sums.flush():
            yield beam.transforms.window.GlobalWindows.windowed_value(element)


class MergeBuckets(beam.DoFn):  # type: ignore[misc]
    """`Look.merge` on Beam."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def process(self, bucket: tuple[str, Iterable[bytes]]) -> None:
        """Adds up one bucket."""
        with leaving_error(self._look.planned.workspace):
            self._look.merge(*bucket)


class MergeSpans(beam.DoFn):  # type: ignore[misc]
    """`Look.merge_span` on Beam."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def process(self, bucket: tuple[str, Iterable[bytes]]) -> Iterator[tuple[str, str]]:
        """Adds up one bucket of one span; yields the bucket and the span."""
        with leaving_error(self._look.planned.workspace):
            yield self._look.merge_span(*bucket)


class AddUpSpans(beam.DoFn):  # type: ignore[misc]
    """`Look.add_up` on Beam."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def process(self, bucket: tuple[str, Iterable[str | None]]) -> None:
        """Adds up one bucket of all spans."""
        key, spans = bucket
        with leaving_error(self._look.planned.workspace):
            self._look.add_up(key, sorted(span for span in spans if span is not None))
