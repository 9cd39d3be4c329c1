"""Reconciles the rows read with the rows written; only a version that adds up is published."""

from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipeline.errors import UserError

Report = Mapping[str, Any]


class ReconcileError(UserError):
    """Rows were lost or counted twice; the message gives the place and the numbers."""


def take_groups(chunk: dict[str, Any]) -> dict[int, int]:
    """Pops the number of rows packed for each group from a chunk's report: those of all chunks fill the memory."""
    return {int(group): count for group, count in chunk.pop("groups").items()}


def check_shards(expected: Mapping[int, int], shards: Mapping[int, Report]) -> None:
    """Checks by group that every packed row is a record, some windows or a reject. Raises: ReconcileError."""
    for group, rows in expected.items():
        if group not in shards:
            raise ReconcileError(f"{rows} rows were read for shard group {group}, and the shard was not built")
        shard = shards[group]
        where = f"shard {shard['shard']} of {shard['split']}"
        built = shard["records"] - shard.get("more_windows", 0) + shard["rejected"]
        if built != rows:
            raise ReconcileError(
                f"{rows} rows were read for {where}, {built} came out of it: the runner lost or repeated rows"
            )


def check_sources(counts: Sequence[Report]) -> None:
    """Checks for each source that read = written + rejected + duplicates + forgotten. Raises: ReconcileError."""
    for source, count in enumerate(counts):
        if count["read"] != sum(count.get(fate, 0) for fate in ("written", "rejected", "duplicates", "forgotten")):
            raise ReconcileError(
                f"source {source} ({count['path']}): {count['read']} rows read, {count['written']} written, "
                f"{count['rejected']} rejected, {count['duplicates']} left out as duplicates and "
                f"{count.get('forgotten', 0)} as forgotten: the rest is lost"
            )


def check_look(seen: Mapping[str, int], packed: Mapping[str, int]) -> None:
    """Checks for each split that the look saw every packed row once. Raises: ReconcileError."""
    for split, rows in seen.items():
        if rows != packed.get(split, 0):
            raise ReconcileError(
                f"the statistics are of {rows} rows of the split '{split}', {packed.get(split, 0)} were read for its "
                "shards: the runner lost or repeated rows"
            )
