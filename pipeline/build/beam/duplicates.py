"""Finds and counts duplicates on the runner; the steps are functions on tables (`pipeline.build.duplicates`)."""

from collections.abc import Iterator
from functools import partial

import apache_beam as beam

from recordmill.pipeline.build.beam.shared_steps import Keep, Send, send
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import leaving_error
from recordmill.pipeline.build.duplicates import find
from recordmill.pipeline.build.duplicates.counts import COUNTS, write_count, write_key_count
from recordmill.pipeline.build.duplicates.decisions import with_joined, write_joined
from recordmill.pipeline.build.duplicates.find import all_take_part, members, read_looks, write_looks
from recordmill.pipeline.build.duplicates.fingerprints import by_hash, contents_of_shard, fingerprints, to_one
from recordmill.pipeline.build.worker.packing import Packed


class FindDuplicates(beam.PTransform):  # type: ignore[misc]
    """From fingerprints by their contents' buckets to the members of whole clusters (`duplicates.find.members`).

    `distance` is how many bits of looks may differ, None where equal contents alone count; `folder` is where the files
    of looks are written.
    """

    def __init__(self, planned: PlannedBuild, distance: int | None, folder: str) -> None:
        super().__init__()
        self._planned, self._distance, self._folder = planned, distance, folder

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        """Adds the steps."""
        planned, grouped = self._planned, rows | "GroupByContent" >> beam.GroupByKey()
        if self._distance is None:
            return grouped | "FindEqual" >> beam.ParDo(Send(planned, members))
        classes = grouped | "FindEqual" >> beam.ParDo(Send(planned, partial(members, alone=True)))
        joined = beam.pvalue.AsList(self._joined(classes, self._distance))
        rejoin = partial(with_joined, planned, partial(find.rejoin, buckets=planned.buckets()))
        return (
            classes
            | "Rejoin" >> beam.ParDo(Send(planned, rejoin), joined)
            | "GroupByCluster" >> beam.GroupByKey()
            | "ChooseWhole" >> beam.ParDo(Send(planned, find.whole))
        )

    def _joined(self, classes: beam.PCollection, distance: int) -> beam.PCollection:
        """Compares all looks; returns the name of the file of joined clusters, nothing where none are."""
        planned, joined = self._planned, partial(write_joined, f"{self._folder}/joined-looks.arrow", find.join_links)
        return (
            classes
            | "WriteLooks" >> beam.ParDo(Keep(planned, partial(write_looks, self._folder)))
            | "CountLooks" >> beam.CombineGlobally(sum)
            | "ListTasks" >> beam.FlatMap(partial(find.tasks, distance))
            | "SpreadTasks" >> beam.Reshuffle()
            | "FindLinks" >> beam.ParDo(FindLinks(planned, self._folder, distance))
            | "GroupLinks" >> beam.GroupByKey()
            | "JoinLinks" >> beam.ParDo(Keep(planned, joined))
        )


class FindLinks(beam.DoFn):  # type: ignore[misc]
    """`duplicates.find.find_links` on Beam."""

    def __init__(self, planned: PlannedBuild, folder: str, distance: int) -> None:
        self._planned, self._folder, self._distance = planned, folder, distance

    def process(self, task: find.Task) -> Iterator[tuple[int, Packed]]:
        """Compares the looks of one task; yields the links, all in one bucket."""
        with leaving_error(self._planned.workspace):
            looks = read_looks(self._folder, self._planned)
            yield from send(self._planned, to_one(find.find_links(looks, self._distance, task)))


class CountDuplicates(beam.PTransform):  # type: ignore[misc]
    """Counts the duplicates among the records of finished shards, whose groups it takes; leaves reports by bucket."""

    def __init__(self, planned: PlannedBuild) -> None:
        super().__init__()
        self._planned = planned

    def expand(self, groups: beam.PCollection) -> None:
        """Adds the steps."""
        planned, duplicates = self._planned, self._planned.duplicates
        self._count(groups, "Exact", None)
        if duplicates.near and duplicates.action == "keep":  # otherwise the placement has counted them
            self._count(groups, "Near", duplicates.distance)
        if planned.schema.keys_may_cross:
            _ = (
                groups
                | "ReadKeys" >> beam.ParDo(ReadShard(planned, "hash", near=False))
                | "GroupByKeyHash" >> beam.GroupByKey()
                | "CountKeys" >> beam.ParDo(Keep(planned, partial(write_key_count, f"{COUNTS}/keys")))
            )

    def _count(self, groups: beam.PCollection, name: str, distance: int | None) -> None:
        write = partial(write_count, f"{COUNTS}/{name.lower()}")
        _ = (
            groups
            | f"Read{name}" >> beam.ParDo(ReadShard(self._planned, "high", near=distance is not None))
            | f"Find{name}" >> FindDuplicates(self._planned, distance, "digests/near")
            | f"Count{name}" >> beam.ParDo(Keep(self._planned, write))
        )


class ReadShard(beam.DoFn):  # type: ignore[misc]
    """Sends the fingerprints of a shard's records to the buckets of a column."""

    def __init__(self, planned: PlannedBuild, column: str, *, near: bool) -> None:
        self._planned, self._column, self._near = planned, column, near

    def process(self, group: int) -> Iterator[tuple[int, Packed]]:
        """Reads one shard's contents."""
        planned = self._planned
        with leaving_error(planned.workspace):
            contents = contents_of_shard(planned.workspace, group)
            if contents is not None:
                columns = () if self._column == "high" else ("hash", "sample")
                rows = all_take_part(fingerprints(contents, *columns, near=self._near))
                buckets = planned.bucket_range(planned.layout.span_of_group(group))
                yield from send(planned, by_hash(rows, self._column, len(buckets), buckets.start))
