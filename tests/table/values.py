"""Cases of values: numbers, names, arrays, and what is stored unchanged."""

import math

import numpy as np

from tests.table.case import ABSENT, Case, float32, int64

NUMBERS = [1, 2, 4, 5, 7, 11, -3, 100]  # mean 5 and variance (16+9+1+0+4+36)/6 = 11 over the six rows of `train`
DEVIATION = math.sqrt(11)
Z_SCORES = [(number - 5) / DEVIATION for number in NUMBERS]
SOME = [1, ABSENT, 4, 5, ABSENT, 10, ABSENT, 100]  # 1, 4, 5 and 10 in `train`: mean 5, median 4.5
SOME_DEVIATION = math.sqrt((16 + 1 + 0 + 25) / 4)


def _filled(given: list[object], number: float) -> list[float]:
    return [number if each is ABSENT else float(each) for each in given]


NUMBER = {
    "number": Case("{kind: number}", NUMBERS, {"": float32(Z_SCORES)}),
    "number_clip": Case(
        "{kind: number, clip: [2, 7], normalize: none}", NUMBERS, {"": float32([2, 2, 4, 5, 7, 7, 2, 7])}
    ),
    "number_optional": Case(
        "{kind: number, optional: true}",
        SOME,
        {"": float32([(number - 5) / SOME_DEVIATION for number in _filled(SOME, 5)])},
    ),
}
CASES = NUMBER
SPECS: dict[str, dict[str, object]] = {}
