"""The fastest way to a random resized crop with NumPy arrays: simplejpeg and OpenCV. Several peers are given it."""

from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from settings import MEAN, SIDE, STD

LOG_ASPECT = np.log(4 / 3)
OFFSET = np.float32(MEAN) * 255
SCALE = 1 / (np.float32(STD) * 255)

cv2.setNumThreads(1)


def random_crop(jpeg: bytes, random: np.random.Generator) -> NDArray[np.uint8]:
    """Decodes a JPEG; gives a random part of it, scaled to [224, 224, 3] and flipped or not."""
    return random_part(simplejpeg.decode_jpeg(jpeg), random)


def random_part(pixels: Any, random: np.random.Generator) -> NDArray[np.uint8]:
    """Gives a random part of an image, scaled to [224, 224, 3] and flipped or not."""
    height, width = pixels.shape[:2]
    share, aspect, top, left, flip = random.random(5)
    area = height * width * (0.08 + 0.92 * share)
    ratio = np.exp(LOG_ASPECT * (2 * aspect - 1))
    wide = max(1, min(int((area * ratio) ** 0.5), width))
    high = max(1, min(int((area / ratio) ** 0.5), height))
    y, x = int(top * (height - high + 1)), int(left * (width - wide + 1))
    scaled: Any = cv2.resize(pixels[y : y + high, x : x + wide], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    return cv2.flip(scaled, 1) if flip < 0.5 else scaled  # type: ignore[no-any-return]


def normalized(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Gives float32 pixels, normalized as for ImageNet."""
    result = pixels.astype(np.float32)
    result -= OFFSET
    result *= SCALE
    return result
