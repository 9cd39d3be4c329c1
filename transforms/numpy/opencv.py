"""OpenCV where it is installed, else None: NumPy then makes the same pixels, but for scaled ones.

OpenCV and NumPy scale with weights that are rounded in different ways: they differ by one of 255 levels at most.
"""

from typing import Any

cv2: Any
try:
    import cv2
except ImportError:
    cv2 = None
else:
    cv2.setNumThreads(1)  # the reader has threads, each with its own image

TIE = 2.0**-12  # a quarter of the maps' unit, so that no sum lies between two levels, which OpenCV rounds in two ways
