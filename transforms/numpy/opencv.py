"""OpenCV if installed, else None: NumPy then makes the same pixels, except scaled ones.

OpenCV and NumPy round scaling weights differently, by at most one of 255 levels. Tests replace `cv2` here.
"""

from typing import Any

cv2: Any
try:
    import cv2
except ImportError:
    cv2 = None
else:
    cv2.setNumThreads(1)  # the reader's threads have an image each

TIE = 2.0**-12  # a quarter of the maps' unit: avoids ties, which OpenCV rounds in two ways
