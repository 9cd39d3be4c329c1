"""Describes a manifest in words, for a build's end, `show` and the report: features, statistics, duplicates.

A feature whose description this Recordmill cannot read is shown by its kind and type as the manifest names them.

>>> stored_words(None, {"kind": "later", "stored": "int64", "shape": [2, 3]})
'int64 2×3'
>>> leaks({"groups": 2, "rows": 3, "across": {"train": {"test": 2}}})
'2 rows of test are also in train'
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.manifest import Json
from recordmill.pipeline.dataset.vocabulary import Ids
from recordmill.transforms.contract.kinds.base import Description, sides_words
from recordmill.transforms.contract.kinds.number import Scaled

SHOWN_BOUNDARIES = 3


def stored_words(description: Description | None, json: Json) -> str:
    """Describes what is stored of a row: the type and, of a list, the number of values."""
    if description is not None:
        return description.words()
    stored, shape = str(json.get("stored", "")), json.get("shape")
    return f"{stored} {sides_words(shape)}".strip() if isinstance(shape, list) else stored


def statistics_words(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    """Describes a feature's values, piece by piece."""
    yield from _vocabulary(name, description, statistics)
    if "mean" in statistics:
        yield f"mean {_numbers(statistics['mean'])}"
        yield f"variance {_numbers(statistics['variance'])}"
    if "minimum" in statistics:
        yield f"{_numbers(statistics['minimum'])} to {_numbers(statistics['maximum'])}"
    if "median" in statistics:
        yield f"median {_numbers(statistics['median'])}"
    if isinstance(description, Scaled) and description.boundaries is not None:
        buckets = [_numbers(boundary) for boundary in description.boundaries]
        if len(buckets) > SHOWN_BOUNDARIES + 1:
            buckets[SHOWN_BOUNDARIES:-1] = ["…"]
        yield f"buckets from {' '.join(buckets)}"
    if statistics.get("relative_error"):
        yield f"quantiles within {statistics['relative_error']:.2g}"
    for form, images in statistics.get("transcoded", {}).items():
        yield f"{images:,} {form} transcoded"


def _vocabulary(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    ids = description if isinstance(description, Ids) else None
    if ids is not None and ids.hash_buckets is not None:
        yield f"{ids.hash_buckets:,} hash buckets"
    elif "words" not in statistics:
        if ids is not None and ids.vocabulary is not None:  # a tokenizer's model, or another feature's vocabulary
            yield f"{ids.vocabulary_size:,} ids"
            file = PurePosixPath(ids.vocabulary).name
            if file != vocabulary_name(name):
                yield f"shared with {file.removesuffix(vocabulary_name(''))}"
    elif statistics.get("known_tokens") is None:
        yield f"{statistics['words']:,} given"
    elif not statistics["distinct"]:
        yield "no words"
    else:
        yield f"{statistics['words']:,} of {statistics['distinct']:,} distinct"
        if statistics["known_tokens"] < statistics["tokens"]:
            yield f"{statistics['known_tokens'] / statistics['tokens']:.1%} of {statistics['tokens']:,} known"


def _numbers(value: float | Sequence[float]) -> str:
    return " ".join(f"{number:.6g}" for number in (value if isinstance(value, Sequence) else [value]))


Counts = Mapping[str, Any]
ARE_IN, ARE_LIKE = ("is also in", "are also in"), ("looks like one of", "look like some of")
"""The relation of one row, or of several, to another split."""


def leaks(counts: Counts, verbs: tuple[str, str] = ARE_IN) -> str:
    """Describes the rows of one split that occur in another; empty if there are none.

    Args:
        counts: as `pipeline.build.duplicates.counts.published` returns them.
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
