"""Reconciles the rows read with the rows written; only a version that adds up is published."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipeline.errors import UserError

Report = Mapping[str, Any]


class ReconcileError(UserError):
    """Rows were lost or counted twice; the message gives the place and the numbers."""


def expected_rows(chunks: Sequence[Report]) -> dict[int, int]:
    """The number of rows packed for each group, by the chunks' reports."""
    expected: Counter[int] = Counter()
    for chunk in chunks:
        expected.update({int(group): count for group, count in chunk["groups"].items()})
    return dict(expected)


def check_shards(chunks: Sequence[Report], shards: Mapping[int, Report]) -> None:
    """Checks that every row packed for a shard is one of its records, one of the documents in these, or a reject.

    Raises:
        ReconcileError: a shard is missing, or holds more or fewer rows, or not all ids of documents that share records.
    """
    for group, rows in expected_rows(chunks).items():
        if group not in shards:
            raise ReconcileError(f"{rows} rows were read for shard group {group}, and the shard was not built")
        shard = shards[group]
        where = f"shard {shard['shard']} of {shard['split']}"
        packed = shard.get("packed")
        built = (packed["documents"] if packed else shard["records"]) + shard["rejected"]
        if built != rows:
            raise ReconcileError(
                f"{rows} rows were read for {where}, {built} came out of it: the runner lost or repeated rows"
            )
        ids = sum(lengths["ids"] for lengths in shard.get("lengths", {}).values())
        if packed and packed["ids"] != ids:
            raise ReconcileError(
                f"the documents of {where} have {ids} ids, its records hold {packed['ids']}: build again"
            )


def check_sources(counts: Sequence[Report]) -> None:
    """Checks for each source that read = written + rejected + duplicates.

    Raises:
        ReconcileError: a source does not add up.
    """
    for source, count in enumerate(counts):
        if count["read"] != count["written"] + count["rejected"] + count["duplicates"]:
            raise ReconcileError(
                f"source {source} ({count['path']}): {count['read']} rows read, {count['written']} written, "
                f"{count['rejected']} rejected and {count['duplicates']} left out as duplicates: the rest is lost"
            )


def check_analysis(name: str, seen: int, train_rows: int) -> None:
    """Checks that the analysis saw every row packed for the train split, once.

    Raises:
        ReconcileError: it saw more or fewer.
    """
    if seen != train_rows:
        raise ReconcileError(
            f"the analysis of {name} saw {seen} rows of the train split, {train_rows} were read: "
            "the runner lost or repeated rows"
        )
