"""Makes folders of synthetic photos: 500×375 JPEG of about 110 KB, in class folders; the same bytes each time.

Smooth clouds of colour at several scales and some grain: like a photo, costly to decode, and hard to compress. Masks
are palette PNGs as Pascal VOC's: a few outlined shapes of 20 classes.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, ImageDraw

from recordmill.transforms.images.color_profile import PRIMARIES, SRGB_CURVE, made_profile

WIDTH, HEIGHT = 500, 375
QUALITY = 92
CLASSES = 7
MASK_CLASSES, OUTLINE = 20, 255
SHAPES, CORNERS = 8, 12
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


def mask(index: int) -> bytes:
    """Makes the PNG bytes of one mask from its number: shapes of many corners around their centres."""
    random = np.random.default_rng(index)
    image = Image.new("P", (WIDTH, HEIGHT))
    image.putpalette(random.integers(0, 256, 3 * (OUTLINE + 1)).tolist())
    turns = np.arange(CORNERS) * (2 * np.pi / CORNERS)
    for _ in range(random.integers(1, SHAPES + 1)):
        centre, radii = random.uniform(0, (WIDTH, HEIGHT)), random.uniform(15, 90, CORNERS)
        corners = centre + radii[:, np.newaxis] * np.stack([np.cos(turns), np.sin(turns)], 1)
        fill = int(random.integers(1, MASK_CLASSES + 1))
        ImageDraw.Draw(image).polygon([*map(tuple, corners)], fill, OUTLINE, width=3)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def write_masked(folder: Path, count: int) -> None:
    """Writes `count` photos as `images/<number>.jpg` and their masks as `masks/<number>.png` under a new folder."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    for index in range(count):
        (folder / "images" / f"{index:06d}.jpg").write_bytes(photo(index))
        (folder / "masks" / f"{index:06d}.png").write_bytes(mask(index))
