"""OpenCV if installed, else None: NumPy then makes the same pixels, except scaled ones.

OpenCV and NumPy round scaling weights differently, by at most one of 255 levels. Tests replace `cv2` here.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

cv2: Any
try:
    import cv2
except ImportError:
    cv2 = None
else:
    cv2.setNumThreads(1)  # the reader's threads have an image each


def takes(pixels: npt.NDArray[Any]) -> bool:
    """Whether OpenCV is installed, and moves these pixels as NumPy does: 8 bits, up to 4 channels."""
    return cv2 is not None and pixels.dtype == np.uint8 and pixels.shape[2] <= 4


TIE = 2.0**-12  # a quarter of the maps' unit: avoids ties, which OpenCV rounds in two ways
