"""EXIF orientations, 1 to 8: how a file's pixels become upright, transposed first and then mirrored.

The functions take integers, arrays and tensors alike, so that pixels and boxes follow one rule in either engine.

>>> is_transposed(6), mirrored(6)
(True, (False, True))
"""

from typing import Any

TAG = 0x0112
"""The number of EXIF's tag."""


def is_transposed(orientation: Any) -> Any:
    """Returns True where height and width change places: from 5 on."""
    return orientation >= 5


def mirrored(orientation: Any) -> tuple[Any, Any]:
    """Returns whether top and bottom, and whether left and right, change places; 5..8 mirror as 1..4 do."""
    turn = (orientation - 1) % 4
    return turn >= 2, (turn == 1) | (turn == 2)
