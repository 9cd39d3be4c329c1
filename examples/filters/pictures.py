"""Leaves dark, flat and blurred pictures out: `filter: pictures:keep`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

DARKEST, FLATTEST, LEAST_SHARP = 20, 5, 30  # levels of 0 to 255; the last is a variance


def keep(row: Mapping[str, Any]) -> str | None:
    """Returns None for a picture to keep, else what is wrong with it."""
    if (pixels := row["image"]) is None:  # of an optional image
        return None
    grey = pixels @ np.array([0.299, 0.587, 0.114])  # from uint8 [height, width, 3]
    if grey.mean() < DARKEST:
        return "dark"
    if grey.std() < FLATTEST:
        return "flat"
    # The variance of the Laplacian (Pech-Pacheco et al. 2000): few edges, little of it.
    edges = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    return "blurred" if edges.size and edges.var() < LEAST_SHARP else None
