"""Finds and counts duplicates on the runner; the steps are functions on tables (`pipeline.build.duplicates`)."""

from collections.abc import Iterator
from functools import partial

import apache_beam as beam

from recordmill.pipeline.build.beam.steps import Keep, Send, Step, composite, send
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.duplicates import find
from recordmill.pipeline.build.duplicates.counts import COUNTS, write_count, write_key_count
from recordmill.pipeline.build.duplicates.decisions import with_joined, write_joined
from recordmill.pipeline.build.duplicates.fingerprints import by_hash, contents_of_shard, fingerprints, to_one
from recordmill.pipeline.build.worker.packing import Packed


@composite
def FindDuplicates(
    rows: beam.PCollection, planned: PlannedBuild, distance: int | None, folder: str
) -> beam.PCollection:
    """Finds the members of whole clusters (`duplicates.find.members`).

    Args:
        rows: fingerprints by the buckets of their contents.
        planned: the build.
        distance: the number of bits of looks that may differ; None where equal contents alone count.
        folder: the folder of the files of looks.
    """
    grouped = rows | "GroupByContent" >> beam.GroupByKey()
    if distance is None:
        return grouped | "FindEqual" >> beam.ParDo(Send(planned, find.members))
    classes = grouped | "FindEqual" >> beam.ParDo(Send(planned, partial(find.members, alone=True)))
    joined = (
        classes
        | "WriteLooks" >> beam.ParDo(Keep(planned, partial(find.write_looks, folder)))
        | "CountLooks" >> beam.CombineGlobally(sum)
        | "ListTasks" >> beam.FlatMap(partial(find.tasks, distance))
        | "SpreadTasks" >> beam.Reshuffle()
        | "FindLinks" >> beam.ParDo(Step(planned, partial(_find_links, planned, folder, distance)))
        | "GroupLinks" >> beam.GroupByKey()
        | "JoinLinks"
        >> beam.ParDo(Keep(planned, partial(write_joined, f"{folder}/joined-looks.arrow", find.join_links)))
    )
    rejoin = partial(with_joined, planned, partial(find.rejoin, buckets=planned.buckets()))
    return (
        classes
        | "Rejoin" >> beam.ParDo(Send(planned, rejoin), beam.pvalue.AsList(joined))
        | "GroupByCluster" >> beam.GroupByKey()
        | "ChooseWhole" >> beam.ParDo(Send(planned, find.whole))
    )


def _find_links(planned: PlannedBuild, folder: str, distance: int, task: find.Task) -> Iterator[tuple[int, Packed]]:
    """Compares the looks of one task; returns the links, all in one bucket."""
    return send(planned, to_one(find.find_links(find.read_looks(folder, planned), distance, task)))


@composite
def CountDuplicates(groups: beam.PCollection, planned: PlannedBuild) -> None:
    """Counts the duplicates among the records of finished shards, by their groups; leaves reports by bucket."""
    duplicates = planned.duplicates
    _count(groups, planned, "Exact", None)
    if duplicates.near and duplicates.action == "keep":  # otherwise the placement has counted them
        _count(groups, planned, "Near", duplicates.distance)
    if planned.schema.keys_may_cross:
        _ = (
            groups
            | "ReadKeys" >> beam.ParDo(Step(planned, partial(_read_shard, planned, "hash", False)))
            | "GroupByKeyHash" >> beam.GroupByKey()
            | "CountKeys" >> beam.ParDo(Keep(planned, partial(write_key_count, f"{COUNTS}/keys")))
        )


def _count(groups: beam.PCollection, planned: PlannedBuild, name: str, distance: int | None) -> None:
    _ = (
        groups
        | f"Read{name}" >> beam.ParDo(Step(planned, partial(_read_shard, planned, "high", distance is not None)))
        | f"Find{name}" >> FindDuplicates(planned, distance, "digests/near")
        | f"Count{name}" >> beam.ParDo(Keep(planned, partial(write_count, f"{COUNTS}/{name.lower()}")))
    )


def _read_shard(planned: PlannedBuild, column: str, near: bool, group: int) -> Iterator[tuple[int, Packed]]:
    """Sends the fingerprints of a shard's records to the buckets of a column."""
    contents = contents_of_shard(planned.workspace, group)
    if contents is not None:
        columns = () if column == "high" else ("hash", "sample")
        rows = find.all_take_part(fingerprints(contents, *columns, near=near))
        buckets = planned.bucket_range(planned.layout.span_of_group(group))
        yield from send(planned, by_hash(rows, column, len(buckets), buckets.start))
