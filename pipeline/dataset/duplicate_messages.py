"""Describes a manifest's duplicates in words, for the end of a build and for `show`.

>>> leaks({"groups": 2, "rows": 3, "across": {"train": {"test": 2}}})
'2 rows of test are also in train'
"""

from collections.abc import Iterator, Mapping
from typing import Any

Counts = Mapping[str, Any]
ARE_IN, ARE_LIKE = ("is also in", "are also in"), ("looks like one of", "look like some of")
"""The relation of one row, or of several, to another split."""


def leaks(counts: Counts, verbs: tuple[str, str] = ARE_IN) -> str:
    """Describes the rows of one split that occur in another; empty if there are none.

    Args:
        counts: as `pipeline.build.duplicates.counts.count_duplicates` gives them.
        verbs: the relation of one row to the other split, and of several.
    """
    across = counts.get("across", {}).items()
    pairs = [(first, other, count) for first, later in across for other, count in later.items()]
    return ", ".join(f"{_rows(count)} of {other} {verbs[count > 1]} {first}" for first, other, count in pairs)


def _keys_across(duplicates: Counts) -> str:
    count = duplicates.get("keys_across", 0)
    return f"{count:,} key{' stands' if count == 1 else 's stand'} in several splits" if count else ""


def warnings(duplicates: Counts) -> Iterator[str]:
    """Yields the lines for the end of a build: duplicates that two splits share."""
    exact, near = leaks(duplicates.get("exact", {})), leaks(duplicates.get("near", {}), ARE_LIKE)
    yield from (line for line in (_keys_across(duplicates), exact, near) if line)


def summary(duplicates: Counts) -> Iterator[str]:
    """Yields the lines for `show`."""
    if line := _keys_across(duplicates):
        yield line
    if exact := duplicates.get("exact"):
        content = " and ".join(duplicates.get("content", [])) or "content"
        yield from _groups(f"of equal {content}", exact, ARE_IN)
    if near := duplicates.get("near"):
        yield from _groups(f"of images within {near['distance']} bits", near, ARE_LIKE)


def _groups(kind: str, counts: Counts, verbs: tuple[str, str]) -> Iterator[str]:
    if not counts["groups"]:
        yield f"no rows {kind}"
        return
    within = ", ".join(f"{count:,} within {split}" for split, count in counts["within"].items())
    groups = f"{counts['groups']:,} group{'' if counts['groups'] == 1 else 's'}"
    yield f"{groups} {kind}, {_rows(counts['rows'])} beside the first of each{f': {within}' if within else ''}"
    if line := leaks(counts, verbs):
        yield line
    for first, other in counts["examples"]:
        yield f"  {first['key']} ({first['split']}), {other['key']} ({other['split']})"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
