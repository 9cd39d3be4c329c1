"""Reconciles what was read with what was written: nothing is published that does not add up."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipeline.errors import UserError

Report = Mapping[str, Any]


class ReconcileError(UserError):
    """Rows were lost or counted twice; the message says where, and by how many."""


def expected_rows(chunks: Sequence[Report]) -> dict[int, int]:
    """How many rows were packed for each group, by the chunks' reports."""
    expected: Counter[int] = Counter()
    for chunk in chunks:
        expected.update({int(group): count for group, count in chunk["groups"].items()})
    return dict(expected)


def check_shards(chunks: Sequence[Report], shards: Mapping[int, Report]) -> None:
    """Every row that was packed for a shard is one of its records, or of the documents in these, or of its rejects.

    Raises:
        ReconcileError: a shard is missing, or holds more or fewer rows, or not all ids of documents that share records.
    """
    for group, rows in expected_rows(chunks).items():
        if group not in shards:
            raise ReconcileError(f"{rows} rows were read for shard group {group}, and the shard was not built")
        shard = shards[group]
        where = f"shard {shard['shard']} of {shard['split']}"
        packed = shard.get("packed")
        found = (packed["documents"] if packed else shard["records"]) + shard["rejected"]
        if found != rows:
            raise ReconcileError(
                f"{rows} rows were read for {where}, {found} came out of it: the runner lost or repeated rows"
            )
        ids = sum(lengths["ids"] for lengths in shard.get("lengths", {}).values())
        if packed and packed["ids"] != ids:
            raise ReconcileError(
                f"the documents of {where} have {ids} ids, its records hold {packed['ids']}: build again"
            )


def check_sources(counts: Sequence[Report]) -> None:
    """For each source: read = written + rejected + duplicates.

    Raises:
        ReconcileError: a source does not add up.
    """
    for place, count in enumerate(counts):
        if count["read"] != count["written"] + count["rejected"] + count["duplicates"]:
            raise ReconcileError(
                f"source {place} ({count['path']}): {count['read']} rows read, {count['written']} written, "
                f"{count['rejected']} rejected and {count['duplicates']} left out as duplicates: the rest is lost"
            )


def check_analysis(name: str, seen: int, train_rows: int) -> None:
    """The analysis saw every row that was packed for the train split, once.

    Raises:
        ReconcileError: it saw more or fewer.
    """
    if seen != train_rows:
        raise ReconcileError(
            f"the analysis of {name} saw {seen} rows of the train split, {train_rows} were read: "
            "the runner lost or repeated rows"
        )
