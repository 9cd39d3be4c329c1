"""Grey of a colour: one rule for the graph, for NumPy and for a background."""

from typing import Any


def luma(red: Any, green: Any, blue: Any) -> Any:
    """Grey of ITU-R BT.601 in 16 bits, as Pillow rounds it; of integers or integer arrays or tensors of 0..255."""
    return (19_595 * red + 38_470 * green + 7_471 * blue + 32_768) // 65_536
