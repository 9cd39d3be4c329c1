"""Makes folders of synthetic photos: 500×375 JPEG of about 110 KB, in class folders; the same bytes each time.

Smooth clouds of colour at several scales and some grain: like a photo, costly to decode, and hard to compress.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms

from recordmill.transforms.contract.color_profile import PRIMARIES, SRGB_CURVE, made_profile

WIDTH, HEIGHT = 500, 375
QUALITY = 92
CLASSES = 7
SCALES = {4: 90.0, 16: 40.0, 64: 30.0, 250: 32.0}
"""How many cells a photo is wide at each scale, and how strong that scale is, in grey levels."""
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
PROFILES = (made_profile(PRIMARIES["Display P3"], SRGB_CURVE), SRGB, SRGB, *[None] * 8)
"""The profiles of photos as people have them: of 1,000, 286 had one, and 91 another than sRGB's."""


def photo(index: int, profile: bytes | None = None) -> bytes:
    """Makes the JPEG bytes of one photo from its number and its profile alone."""
    random = np.random.default_rng(index)
    pixels = np.full((HEIGHT, WIDTH, 3), 128, np.float32)
    for cells, strength in SCALES.items():
        noise = random.standard_normal((max(2, cells * HEIGHT // WIDTH), cells, 3), np.float32)
        # uint8 for Pillow's resize: ±4 standard deviations
        small = Image.fromarray(np.clip(noise * 32 + 128, 0, 255).astype(np.uint8))
        large = np.asarray(small.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.float32)
        pixels += (large - 128) * (strength / 32)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=QUALITY, icc_profile=profile)
    return buffer.getvalue()


def write_photos(folder: Path, count: int, profiles: Sequence[bytes | None] = (None,)) -> None:
    """Writes `count` photos as `<class>/<number>.jpg` under a new folder, their profiles in turns."""
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
    for index in range(count):
        (folder / f"class{index % CLASSES}" / f"{index:06d}.jpg").write_bytes(
            photo(index, profiles[index % len(profiles)])
        )
