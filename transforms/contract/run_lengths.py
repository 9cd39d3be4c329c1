"""COCO's compressed run lengths of masks, which pycocotools writes as `counts`.

>>> decode("52203").tolist()
[5, 2, 2, 2, 5]
"""

import numpy as np
import numpy.typing as npt

MOST_DIGITS = 7  # 35 bits in a count: more pixels than any image has


def decode(counts: str) -> npt.NDArray[np.int64]:
    """Decodes counts, int64 [counts], of pixels outside and inside in turn, down the columns of a mask.

    A count has 5 bits in each character, lowest first; from the fourth on it is the difference from the last but one.
    Raises: ValueError: another text.
    """
    digits = np.frombuffer(counts.encode("utf-8", "replace"), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(digits & 32 == 0)
    starts = np.r_[0, ends[:-1] + 1][: len(ends)]
    lengths = ends + 1 - starts
    if not 0 <= digits.min(initial=0) <= digits.max(initial=0) < 64 or lengths.sum() < len(digits):
        raise ValueError("`counts` is no text of pycocotools")
    if lengths.max(initial=0) > MOST_DIGITS:
        raise ValueError(f"`counts` has a number of more than {MOST_DIGITS} characters")
    if not len(ends):
        return ends
    places = np.arange(len(digits)) - np.repeat(starts, lengths)
    found = np.add.reduceat((digits & 31) << 5 * places, starts)
    found -= (digits[ends] & 16 != 0).astype(np.int64) << 5 * lengths
    for first in (1, 2):
        found[first::2] = np.cumsum(found[first::2])
    return found
