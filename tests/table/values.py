"""Cases of values: numbers, names, arrays, and what is stored unchanged."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.farm_hash import fingerprint64
from tests.table.case import ABSENT, TRAIN, Case, float32, int64

NUMBERS = [1, 2, 4, 5, 7, 11, -3, 100]  # mean 5 and variance (16 + 9 + 1 + 0 + 4 + 36) / 6 = 11 in `train`
SOME = [1, ABSENT, 4, 5, ABSENT, 10, ABSENT, 100]  # 1, 4, 5 and 10 in `train`: mean 5, median 4.5
LISTS = [[1, 2], [3], [], [5, 1], [6], [], [9], [-3, 4, 7]]
NAMES = ["b", "c", "b", "a", "c", "b", "é", "c"]  # in `train` b three times, c twice, a once; never é
SOME_NAMES = ["b", ABSENT, "b", "a", "c", "b", "é", ABSENT]
TAGS = [["b", "c"], ["c"], [], ["a", "b", "b"], ["c"], ["b"], ["é", "c"], ["a", "é"]]
UNITS = [[0, 1], [1, 0], [2, 3], [4, 5], [6, 7], [8, 9], [1, 1], [3, 2]]


def moments(rows: Iterable[Any]) -> tuple[float, float]:
    """Returns mean and standard deviation of the numbers that rows of `train` have."""
    known = [float(each) for each in rows if each is not ABSENT]
    mean = sum(known) / len(known)
    return mean, math.sqrt(sum((each - mean) ** 2 for each in known) / len(known))


def z_scores(rows: Sequence[Any], missing: float = 0.0) -> list[Any]:
    """Returns (x - mean) / deviation over `train`, and a number for what is missing."""
    mean, deviation = moments(rows[TRAIN])
    return float32([missing if each is ABSENT else (each - mean) / deviation for each in rows])


def filled(rows: Sequence[Any], missing: Any) -> list[Any]:
    """Returns rows with a value for what is missing."""
    return [missing if each is ABSENT else each for each in rows]


def lengths(rows: Sequence[Any]) -> list[Any]:
    """Returns the number of values of each row."""
    return int64([len(each) for each in rows])


def padded(rows: Sequence[Sequence[Any]], length: int, with_: Any = 0) -> list[list[Any]]:
    """Returns rows of one length."""
    return [[*row[:length], *[with_] * (length - len(row))] for row in rows]


def each(rows: Sequence[Any], change: Callable[[Any], Any]) -> list[Any]:
    """Changes each value of rows, or of their lists."""
    return [[*map(change, row)] if isinstance(row, list) else change(row) for row in rows]


def ids(rows: Sequence[Any], known: str, first: int = 1, unknown: Callable[[str], int] = lambda name: 0) -> list[Any]:
    """Returns the place of each name among the known ones, from `first` on; that of others is `unknown`."""
    return int64(each(rows, lambda name: known.index(name) + first if name and name in known else unknown(name)))


def hashed(buckets: int) -> Callable[[str], int]:
    """Returns a function that gives a name its id by hash, from 1; 0 for none."""
    return lambda name: fingerprint64(name.encode()) % buckets + 1 if name else 0


def known(rows: Sequence[Any], names: str) -> list[Any]:
    """Returns the names that people are shown: unknown ones by a word."""
    return each(rows, lambda name: name if name is None or name in names else "[UNK]")


NUMBER = {
    "number": Case("{kind: number}", NUMBERS, {"": z_scores(NUMBERS)}, shown=NUMBERS),
    "from": Case(
        "{kind: number, column: price, normalize: none}", [], {"": float32(NUMBERS)}, columns={"price": NUMBERS}
    ),
    "number_parse": Case(
        "{kind: number, parse: true, normalize: none}", [f" {each}e0" for each in NUMBERS], {"": float32(NUMBERS)}
    ),
    "number_log": Case(
        "{kind: number, transform: log, clip: [2, null], normalize: none}",
        NUMBERS,
        {"": float32([math.log(max(each, 2)) for each in NUMBERS])},
        shown=[max(each, 2) for each in NUMBERS],
    ),
    "number_log1p": Case(
        "{kind: number, transform: log1p}", NUMBERS, {"": z_scores([math.log1p(max(each, 0)) for each in NUMBERS])}
    ),
    "number_min_max": Case(
        "{kind: number, normalize: min_max, clip: [null, 7]}",
        NUMBERS,
        {"": float32([(min(each, 7) - 1) / 6 for each in NUMBERS])},
        shown=[min(each, 7) for each in NUMBERS],
    ),
    "number_boundaries": Case("{kind: number, boundaries: [2, 7]}", NUMBERS, {"": int64([0, 1, 1, 1, 2, 2, 0, 2])}),
    "number_optional": Case("{kind: number, optional: true}", SOME, {"": z_scores(SOME)}),
    "number_median": Case(
        "{kind: number, optional: true, impute: median, indicator: true}",
        SOME,
        {"": z_scores(SOME, -0.5 / moments(SOME[TRAIN])[1]), "missing": int64([each is ABSENT for each in SOME])},
        shown=filled(SOME, None),
    ),
    "number_clip": Case(  # the mean of 2, 4, 5 and 7 for what is missing
        "{kind: number, clip: [2, 7], normalize: none, optional: true}",
        SOME,
        {"": float32([2, 4.5, 4, 5, 4.5, 7, 4.5, 7])},
    ),
    "number_quantiles": Case(  # from 4 and from 5 on; the mean, 5, for what is missing
        "{kind: number, quantiles: 3, optional: true, indicator: true}",
        SOME,
        {"": int64([0, 2, 1, 2, 2, 2, 2, 2]), "missing": int64([each is ABSENT for each in SOME])},
        shown=[
            None if each is ABSENT else {"bucket": (each >= 4) + (each >= 5), "from": {1: None, 4: 4}.get(each, 5)}
            for each in SOME
        ],
    ),
    "number_impute": Case(
        "{kind: number, optional: true, impute: 7, clip: [0, 6], transform: log1p, normalize: none}",
        SOME,
        {"": float32([math.log1p(each) for each in (1, 6, 4, 5, 6, 6, 6, 6)])},
    ),
}
TWO = [[1, 2], [3, 5], [0, 0], [5, 1], [6, 6], [4, 4], [9, 8], [-3, 4]]
NUMBERS_ = {
    "numbers": Case(
        "{kind: numbers, optional: true}",
        [*LISTS[:5], ABSENT, *LISTS[6:]],
        {"": float32(each(LISTS, lambda x: (x - 3) / math.sqrt(22 / 6))), "+length": lengths(LISTS)},
        shown=LISTS,
    ),
    "numbers_two": Case(
        "{kind: numbers, length: 2, optional: true, normalize: min_max, separator: ;}",
        [*("1;2", "3;5", ABSENT, "5;1", "6;6", "4;4", "9;8", "-3;4")],
        {"": float32([[(x - 1) / 5 for x in row] if row != [0, 0] else [0, 0] for row in TWO])},
        stored={"": float32([[(x - 1) / 5 for x in row] if row != [0, 0] else [] for row in TWO])},
    ),
    "numbers_cut": Case(
        "{kind: numbers, column: lists, max_length: 2, transform: log, clip: [1, 6], normalize: none, parse: true}",
        [],
        {
            "": float32(padded(each(LISTS, lambda x: math.log(min(max(x, 1), 6))), 2)),
            "+length": lengths([row[:2] for row in LISTS]),
        },
        stored={"": float32(each([row[:2] for row in LISTS], lambda x: math.log(min(max(x, 1), 6))))},
        columns={"lists": each(LISTS, str)},
    ),
    "numbers_log1p": Case(
        "{kind: numbers, transform: log1p, normalize: none}",
        LISTS,
        {"": float32(each(LISTS, lambda x: math.log1p(max(x, 0)))), "+length": lengths(LISTS)},
    ),
    "numbers_quantiles": Case(  # of 1, 3, 5 and 6, which are stored: fewer values than buckets
        "{kind: numbers, quantiles: 9, max_length: 1}",
        LISTS,
        {
            "": int64(padded(each(LISTS, lambda x: (x >= 3) + (x >= 5) + (x >= 6)), 1)),
            "+length": lengths([row[:1] for row in LISTS]),
        },
        stored={"": int64(each([row[:1] for row in LISTS], lambda x: (x >= 3) + (x >= 5) + (x >= 6)))},
    ),
    "in": Case(
        "{kind: numbers, boundaries: [2, 6]}",
        LISTS,
        {"": int64(each(LISTS, lambda x: (x >= 2) + (x >= 6))), "+length": lengths(LISTS)},
    ),
}
CATEGORY = {
    "category": Case("{kind: category}", NAMES, {"": ids(NAMES, "abc")}, shown=known(NAMES, "abc")),
    "category_optional": Case("{kind: category, optional: true}", SOME_NAMES, {"": ids(filled(SOME_NAMES, ""), "abc")}),
    "category_column": Case(
        "{kind: category, column: animal, order: frequency}", [], {"": ids(NAMES, "bca")}, columns={"animal": NAMES}
    ),
    "category_max": Case("{kind: category, max_classes: 1}", NAMES, {"": ids(NAMES, "b")}),
    "category_minimum": Case("{kind: category, minimum_count: 2}", NAMES, {"": ids(NAMES, "bc")}),
    "category_oov": Case(
        "{kind: category, oov_buckets: 3, optional: true}",
        SOME_NAMES,
        {"": ids(filled(SOME_NAMES, ""), "abc", 4, hashed(3))},
        shown=known(filled(SOME_NAMES, None), "abc"),
    ),
    "category_hash": Case("{kind: category, hash_buckets: 5}", NAMES, {"": ids(NAMES, "", 0, hashed(5))}),
    "category_classes": Case("{kind: category, classes: [c, b]}", NAMES, {"": ids(NAMES, "cb")}),
    "category_shown": Case(
        "{kind: category, classes: {c: Cat, b: Bee}}",
        NAMES,
        {"": ids(NAMES, "cb")},
        shown=[{"c": "Cat", "b": "Bee"}.get(name, "[UNK]") for name in NAMES],
    ),
    "category_fresh": Case("{kind: category, classes: fresh}", NAMES, {"": ids(NAMES, "abc")}),
    "category_file": Case(
        "{kind: category, classes_file: names.txt}", NAMES, {"": ids(NAMES, "cb")}, files={"names.txt": b"c\nb\n"}
    ),
    "category_cross": Case(
        "{kind: category, cross: [category, category_optional], hash_buckets: 11}",
        [],
        {
            "": int64(
                [
                    0 if other is ABSENT else hashed(11)(f"{name}\n{other}")
                    for name, other in zip(NAMES, SOME_NAMES, strict=True)
                ]
            )
        },
    ),
    "class": Case("{kind: category}", NAMES, {"": ids(NAMES, "abcé", 0)}, shown=NAMES, dataset="label"),
}
NO_TAGS = [*TAGS[:2], ABSENT, *TAGS[3:]]


def hot(rows: Sequence[Sequence[int]], size: int) -> list[Any]:
    """Returns 1 at the ids of each row."""
    return float32([[float(place in row) for place in range(size)] for row in rows])


CATEGORIES = {
    "categories": Case(
        "{kind: categories, optional: true}",
        NO_TAGS,
        {"": ids(TAGS, "abc", 2, lambda name: 1), "+length": lengths(TAGS)},
        shown=known(TAGS, "abc"),
    ),
    "categories_cut": Case(
        "{kind: categories, max_length: 2, separator: ' ', column: joined, order: frequency}",
        [],
        {
            "": int64(padded(ids([tags[:2] for tags in TAGS], "cba", 2, lambda name: 1), 2)),
            "+length": lengths([tags[:2] for tags in TAGS]),
        },  # cut, c stands three times, b twice, once after "a", and a once
        stored={"": ids([tags[:2] for tags in TAGS], "cba", 2, lambda name: 1)},
        columns={"joined": [" ".join(tags) for tags in TAGS]},
    ),
    "categories_hot": Case(
        "{kind: categories, read: multi_hot, max_classes: 2}",
        TAGS,
        {"": hot(ids(TAGS, "bc", 2, lambda name: 1), 4)},
        stored={"": ids(TAGS, "bc", 2, lambda name: 1)},
    ),
    "categories_minimum": Case(
        "{kind: categories, read: ids, minimum_count: 2, length: 1}",
        [[name] for name in NAMES],
        {"": ids([[name] for name in NAMES], "bc", 2, lambda name: 1)},
    ),
    "categories_oov": Case(
        "{kind: categories, oov_buckets: 3}", TAGS, {"": ids(TAGS, "abc", 4, hashed(3)), "+length": lengths(TAGS)}
    ),
    "categories_hash": Case(
        "{kind: categories, hash_buckets: 5}", TAGS, {"": ids(TAGS, "", 0, hashed(5)), "+length": lengths(TAGS)}
    ),
    "categories_classes": Case(
        "{kind: categories, classes: [c, b]}",
        TAGS,
        {"": ids(TAGS, "cb", 2, lambda name: 1), "+length": lengths(TAGS)},
    ),
    "categories_fresh": Case(
        "{kind: categories, classes: fresh}",
        TAGS,
        {"": ids(TAGS, "abc", 2, lambda name: 1), "+length": lengths(TAGS)},
    ),
    "categories_file": Case(
        "{kind: categories, classes_file: few_tags.txt}",
        TAGS,
        {"": ids(TAGS, "cb", 2, lambda name: 1), "+length": lengths(TAGS)},
        files={"few_tags.txt": b"c\nb\n"},
    ),
    "categories_label": Case(
        "{kind: categories}",
        TAGS,
        {"": hot(ids(TAGS, "abcé", 0), 4)},
        stored={"": ids(TAGS, "abcé", 0)},
        shown=TAGS,
        dataset="labels",
    ),
    "categories_label_ids": Case(
        "{kind: categories, read: ids}",
        TAGS,
        {"": ids(TAGS, "abcé", 0), "+length": lengths(TAGS)},
        padding={"": -1},
        dataset="label_ids",
    ),
}


def arrays(rows: Sequence[Any], dtype: Any, **more: Any) -> dict[str, Any]:
    """Returns what is read and stored of arrays."""
    made = [np.array(row, dtype) for row in rows]
    return {"read": {"": made, **more}, "stored": {"": [each.tobytes() for each in made]}}


GROWING = [[[row, -row]] * (row % 4) for row in range(8)]
SOME_GROWING = [row or ABSENT for row in GROWING]
ARRAY = {
    "array": Case("{kind: array, shape: [2]}", UNITS, **arrays(UNITS, np.float32), shown=UNITS),
    "array_optional": Case(
        "{kind: array, shape: [2], dtype: int16, optional: true, column: units}",
        [],
        {
            "": [np.array(row, np.int16) for row in [*UNITS[:2], [0, 0], *UNITS[3:]]],
            "missing": int64([0, 0, 1, *[0] * 5]),
        },
        stored={
            "": [np.array([0, 0] if row == [2, 3] else row, np.int16).tobytes() for row in UNITS],
            "missing": int64([0, 0, 1, *[0] * 5]),
        },
        columns={"units": [*UNITS[:2], ABSENT, *UNITS[3:]]},
        shown=[*UNITS[:2], None, *UNITS[3:]],
    ),
    "array_growing": Case(
        "{kind: array, shape: [null, 2], dtype: bfloat16, optional: true}",
        SOME_GROWING,
        {
            "": [np.array(row, ml_dtypes.bfloat16).reshape(-1, 2) for row in GROWING],
            "+length": int64([row % 4 for row in range(8)]),
        },
        stored={"": [np.array(row, ml_dtypes.bfloat16).tobytes() for row in GROWING]},
        shown=GROWING,
    ),
    "array_cut": Case(
        "{kind: array, shape: [null, 2], dtype: float16, max_length: 2}",
        GROWING,
        {
            "": [np.array(row, np.float16) for row in padded(GROWING, 2, [0, 0])],
            "+length": int64([min(row % 4, 2) for row in range(8)]),
        },
        stored={"": [np.array(row[:2], np.float16).tobytes() for row in GROWING]},
    ),
    **{
        f"array_{dtype}": Case(
            f"{{kind: array, shape: [1, 2], dtype: {dtype}}}",
            [[row] for row in UNITS],
            **arrays([[row] for row in UNITS], np.dtype(dtype)),
        )
        for dtype in ("uint8", "int32", "int64")
    },  # fmt: skip
}
TEXTS = [f"é{row}" for row in range(8)]
WHOLE = [(1 << 40) + row for row in range(8)]
RAW = {
    "raw": Case("{kind: raw}", TEXTS, {"": [each.encode() for each in TEXTS]}, shown=TEXTS),
    "raw_optional": Case(
        "{kind: raw, optional: true, column: maybe}",
        [],
        {"": [b"" if row == 1 else each.encode() for row, each in enumerate(TEXTS)]},
        columns={"maybe": [ABSENT if row == 1 else each for row, each in enumerate(TEXTS)]},
    ),
    "raw_int64": Case(
        "{kind: raw, type: int64, optional: true}",
        [ABSENT, *WHOLE[1:]],
        {"": int64([0, *WHOLE[1:]])},
        shown=[0, *WHOLE[1:]],
    ),
    "raw_float32": Case(
        "{kind: raw, type: float32, optional: true}", [ABSENT, *NUMBERS[1:]], {"": float32([math.nan, *NUMBERS[1:]])}
    ),
    "raw_many": Case(
        "{kind: raw, many: true, type: int64, optional: true}",
        [ABSENT if row == 2 else each for row, each in enumerate(LISTS)],
        {"": int64(LISTS), "+length": lengths(LISTS)},
        shown=LISTS,
    ),
    "raw_many_float32": Case(
        "{kind: raw, many: true, type: float32, max_length: 2}",
        LISTS,
        {"": float32(padded(LISTS, 2)), "+length": lengths([row[:2] for row in LISTS])},
        stored={"": float32([row[:2] for row in LISTS])},
    ),
    "raw_words": Case(
        "{kind: raw, many: true, separator: ;, length: 2}",
        [f"a{row};b" for row in range(8)],
        {"": [np.array([f"a{row}".encode(), b"b"], object) for row in range(8)]},
    ),
}
CASES = {**NUMBER, **NUMBERS_, **CATEGORY, **CATEGORIES, **ARRAY, **RAW}
SPECS: dict[str, dict[str, object]] = {
    "label": {"label": "class"},
    "labels": {"label": "categories_label"},
    "label_ids": {"label": "categories_label_ids"},
}
