"""Encodes images as JPEG with restart markers, which a reader cuts parts out of (`transforms.numpy.jpeg_parts`).

The pixels are those of the graph's own encoder: libjpeg-turbo both times, with the same tables. A marker every few
blocks adds one to three percent of bytes.
"""

import io
import re

import numpy as np
from PIL import Image

from recordmill.transforms.contract.image_metadata import without_metadata
from recordmill.transforms.contract.kinds.image import ImageOptions

NETPBM = re.compile(rb"P([56]) (\d{5}) (\d{5}) 255 ")
MODES = {b"5": "L", b"6": "RGB"}
DENSITY = (300, 300)
INTERVALS = {16: (2, 3, 4, 5, 6, 7, 8), 8: (4, 3, 5, 2, 6, 7, 8)}
"""The MCUs between two markers, by an MCU's width in pixels, the best first: fewer cost bytes, more cut less finely."""
LEAST_SIDE = 96
"""The shorter side in pixels of images that have markers: to decode less costs less than to cut."""


def as_jpeg(image: bytes, options: ImageOptions) -> bytes:
    """Encodes an image that the transform graph gave as Netpbm, or gives a stored file without what is to be stripped.

    Args:
        image: Netpbm as `transforms.tensorflow.image_encode` writes it, JPEG, PNG, or nothing for a missing image.
        options: an image's.
    """
    header = NETPBM.match(image)
    if header is None:
        return without_metadata(image) if options.strips else image
    width, height = int(header[2]), int(header[3])
    mode, data = MODES[header[1]], np.frombuffer(image, np.uint8, offset=header.end())  # not a copy
    pixels = Image.frombuffer(mode, (width, height), data, "raw", mode, 0, 1)
    file = io.BytesIO()
    subsampling = options.chroma if options.channels == 3 else "4:4:4"
    blocks = interval(width, 16 if subsampling == "4:2:0" else 8) if min(width, height) >= LEAST_SIDE else 0
    pixels.save(
        file, "JPEG", quality=options.quality, subsampling=subsampling, dpi=DENSITY, restart_marker_blocks=blocks
    )
    return file.getvalue()


def interval(width: int, unit: int) -> int:
    """Returns the MCUs, `unit` pixels wide (8 or 16), between two restart markers: as many fit a row exactly."""
    row = -(-width // unit)
    return next((blocks for blocks in INTERVALS[unit] if row % blocks == 0), row)
