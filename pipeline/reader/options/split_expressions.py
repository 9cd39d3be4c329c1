"""Split expressions as TensorFlow Datasets has them: `train[:80%]`, `train[100:]`, `train+validation[-10:]`.

>>> ranges("train[:80%]+test", {"train": 10, "test": 4})
[('train', 0, 8), ('test', 0, 4)]
"""

import re
from collections.abc import Mapping

from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.errors import did_you_mean, listed

_ONE = re.compile(r"(?P<name>[^\[\]+]+?)(?:\[(?P<first>-?\d+%?)?:(?P<end>-?\d+%?)?\])?")
FORM = "a split is written like train, train[:80%], train[100:200] or train+validation"


def ranges(expression: str, records: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Gives the ranges of records that an expression means: split, first record, end.

    A share is rounded to the nearest record, half to even, so that `train[:80%]` and `train[80%:]` share none and miss
    none. Numbers beyond the split stop at its end; negative ones count from there.

    Args:
        expression: one or several, joined by `+`.
        records: the number of records of each split.

    Raises:
        DatasetError: it is no such expression, or there is no split of that name.
    """
    return [_range(part.strip(), expression, records) for part in expression.split("+")]


def _range(part: str, expression: str, records: Mapping[str, int]) -> tuple[str, int, int]:
    match = _ONE.fullmatch(part)
    if match is None:
        raise DatasetError(f"the split '{expression}' cannot be read at '{part}': {FORM}")
    name = match["name"]
    if name not in records:
        raise DatasetError(f"there is no split '{name}'{did_you_mean(name, records)}; there are: {listed(records)}")
    size = records[name]
    first = _record(match["first"] or "0", size, expression)
    return name, first, max(first, _record(match["end"] or "100%", size, expression))


def _record(written: str, size: int, expression: str) -> int:
    if written.endswith("%"):
        share = int(written[:-1])
        if abs(share) > 100:
            raise DatasetError(f"the split '{expression}' asks for {written}: a share is -100% to 100%")
        record = round(size * share / 100)
    else:
        record = int(written)
    return min(size, max(0, record + size if written.startswith("-") else record))
