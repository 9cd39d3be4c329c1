"""Duplicates in words: what a person is told of them at the end of a build, and by `show`.

>>> leaks({"groups": 2, "rows": 3, "across": {"train": {"test": 2}}})
'2 rows of test are also in train'
"""

from collections.abc import Iterator, Mapping
from typing import Any

Counts = Mapping[str, Any]
ARE_IN, ARE_LIKE = ("is also in", "are also in"), ("looks like one of", "look like some of")
"""What one row, or several, of a split do in another."""


def leaks(counts: Counts, verbs: tuple[str, str] = ARE_IN) -> str:
    """The rows of one split that occur in another; empty where there are none.

    Args:
        counts: as `pipeline.build.duplicates.counts.count_duplicates` gives them.
        verbs: what a row does in the other split, and what several do.
    """
    pairs = [(one, other, count) for one, later in counts.get("across", {}).items() for other, count in later.items()]
    return ", ".join(f"{_rows(count)} of {other} {verbs[count > 1]} {one}" for one, other, count in pairs)


def keys_across(duplicates: Counts) -> str:
    """The keys that stand in several splits; empty where none does."""
    count = duplicates.get("keys_across", 0)
    return f"{count:,} key{' stands' if count == 1 else 's stand'} in several splits" if count else ""


def warnings(duplicates: Counts) -> Iterator[str]:
    """What the end of a build says of a manifest's duplicates: those that two splits share."""
    exact, near = leaks(duplicates.get("exact", {})), leaks(duplicates.get("near", {}), ARE_LIKE)
    yield from (line for line in (keys_across(duplicates), exact, near) if line)


def summary(duplicates: Counts) -> Iterator[str]:
    """What `show` says of a manifest's duplicates, line by line."""
    if told := keys_across(duplicates):
        yield told
    if found := duplicates.get("exact"):
        yield from _found(f"of equal {_content(duplicates)}", found, ARE_IN)
    if found := duplicates.get("near"):
        yield from _found(f"of pictures within {found['distance']} bits", found, ARE_LIKE)


def _found(of_what: str, counts: Counts, verbs: tuple[str, str]) -> Iterator[str]:
    if not counts["groups"]:
        yield f"no rows {of_what}"
        return
    within = ", ".join(f"{count:,} within {split}" for split, count in counts["within"].items())
    groups = f"{counts['groups']:,} group{'' if counts['groups'] == 1 else 's'}"
    yield f"{groups} {of_what}, {_rows(counts['rows'])} beside the first of each{f': {within}' if within else ''}"
    if told := leaks(counts, verbs):
        yield told
    for one, other in counts["examples"]:
        yield f"  {one['key']} ({one['split']}), {other['key']} ({other['split']})"


def _content(duplicates: Counts) -> str:
    return " and ".join(duplicates.get("content", [])) or "content"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
