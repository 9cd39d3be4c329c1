"""The appearance of images, by which the gate sees inverted, grey, blurred or recoloured ones (`pipeline.compare`).

>>> appearance([open("cat.jpg", "rb").read()], max_pixels=64_000_000)["brightness"]  # doctest: +SKIP
array([117.25], dtype=float32)
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.build.images.perceptual_hash import small_pixels

MEASURES = ("brightness", "saturation", "blue", "red", "sharpness")
STEPS = 16  # of a level: so few different values stay exact in a histogram


def appearance(images: Iterable[bytes], max_pixels: int) -> dict[str, npt.NDArray[np.float32]]:
    """Measures images at 32 × 32 pixels; one that is damaged, or in a format that is not read, counts nothing.

    Returns:
        By measure, in levels of 0 to 255, float32 [measured images] of steps of 1/16: the mean luma; the mean length of
        chroma; its means along blue and red; and the mean difference of neighbours' luma.

    Raises:
        MemoryError, ImportError, OSError: the machine failed (`pipeline.sources.files`).
    """
    small = (small_pixels(data, max_pixels) for data in images)
    measured = [_measures(pixels) for pixels in small if pixels is not None]
    columns = np.rint(STEPS * np.array(measured).reshape(-1, len(MEASURES)).T) / STEPS
    return dict(zip(MEASURES, columns.astype(np.float32), strict=True))


def _measures(pixels: npt.NDArray[np.float64]) -> tuple[float, ...]:
    luma, chroma = pixels[..., 0], pixels[..., 1:] - 128
    blue, red = chroma.mean((0, 1)).tolist()
    edges = (np.abs(np.diff(luma, axis=axis)).mean() for axis in (0, 1))
    return float(luma.mean()), float(np.hypot(*chroma.T).mean()), blue, red, float(sum(edges)) / 2
