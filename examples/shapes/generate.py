"""Generates captioned images of shapes, a few of them broken: a folder of images with its `metadata.csv`.

The label is the shape, which the pixels show and the caption never names; the caption tells the colour and the size,
and often what kind of outline it is. The same count and seed give the same bytes (for the same NumPy and Pillow).

    python examples/shapes/generate.py demo/data/images --images 3000 --seed 0
"""

import argparse
import csv
import io
import math
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Points = list[tuple[float, float]]

SUPERSAMPLING = 3  # outlines are drawn three times as large and averaged: smooth edges
BROKEN_SHARE = 0.0008  # of the images, for each way to be broken: 0.4 % in all
BLURRED_SHARE = 0.15  # of the images are out of focus, so that the caption helps
HINTED_SHARE = 0.9  # of the captions tell the outline
EXIF_ORIENTATION = 0x0112


def ring(radii: list[float], first_angle: float = 0.0) -> Points:
    """Puts one point at each radius, evenly around the origin."""
    step = 2 * math.pi / len(radii)
    return [
        (radius * math.cos(first_angle + i * step), radius * math.sin(first_angle + i * step))
        for i, radius in enumerate(radii)
    ]


def heart() -> Points:
    """Samples the heart curve (16 sin³t, 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t), scaled to about 1."""
    angles = [2 * math.pi * i / 60 for i in range(60)]
    return [
        (
            math.sin(t) ** 3,
            -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16,
        )
        for t in angles
    ]


def cross(arm: float = 0.32) -> Points:
    """Gives the twelve corners of a plus sign whose arms are `2 * arm` wide."""
    quarter = [(arm, -arm), (0.95, -arm), (0.95, arm)]
    return [point for turn in range(4) for point in (rotate(quarter, turn * math.pi / 2))]


def rotate(points: Points, angle: float) -> Points:
    """Turns points around the origin by an angle in radians."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return [(x * cosine - y * sine, x * sine + y * cosine) for x, y in points]


OUTLINES: dict[str, Points] = {
    "circle": ring([0.9] * 60),
    "cross": cross(),
    "heart": heart(),
    "square": ring([1.0] * 4, math.pi / 4),
    "star": ring([1.0, 0.42] * 5, -math.pi / 2),
    "triangle": ring([1.0] * 3, -math.pi / 2),
}
"""Each shape's outline within about 1 of the origin."""

HINTS = {
    "circle": "round",
    "heart": "round",
    "cross": "right-angled",
    "square": "right-angled",
    "star": "pointed",
    "triangle": "pointed",
}

COLOURS = {
    "red": (208, 44, 48),
    "orange": (236, 128, 28),
    "yellow": (226, 190, 30),
    "green": (46, 148, 72),
    "blue": (40, 92, 196),
    "purple": (128, 62, 168),
    "pink": (228, 110, 160),
    "brown": (122, 80, 48),
}

BACKGROUNDS = {
    "white": (246, 246, 244),
    "pale": (222, 226, 214),
    "grey": (178, 180, 182),
    "dark": (52, 56, 64),
}

SIZES = {"small": (0.24, 0.32), "large": (0.36, 0.48)}
"""The outline's reach as a share of the image's shorter side."""

TEMPLATES = (
    "",
    "A {size} {colour} shape",
    "{size}, {colour} and {hint}, on a {ground} ground",
    "Something {colour}, {hint} and {size}",
    "On {ground}: one {hint} {colour} thing",
    "a {hint} shape in {colour}",
    'The "{colour}" one, {size}, {hint}',
    "One {colour} figure on a {ground} background, {hint}",
)

FORMATS = {"jpeg": 0.45, "grey_jpeg": 0.05, "exif_jpeg": 0.10, "png": 0.20, "rgba_png": 0.15, "grey_png": 0.05}
"""The forms that the images are stored in, and the share of each."""

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}
"""For an EXIF orientation, how the pixels are stored so that the viewer's turn brings them back."""


def choose(random: np.random.Generator, shares: dict[str, float]) -> str:
    """Draws a key by its share."""
    return str(random.choice(list(shares), p=list(shares.values())))


def caption(random: np.random.Generator, shape: str, words: dict[str, str]) -> str:
    """Fills a template; without an outline, the shape is 'plain'."""
    hint = HINTS[shape] if random.random() < HINTED_SHARE else "plain"
    template = TEMPLATES[random.integers(len(TEMPLATES))]
    return template.format(hint=hint, **words)


def draw(random: np.random.Generator, shape: str, words: dict[str, str]) -> Image.Image:
    """Draws a shape in a random place, turned at random, as RGBA on a transparent ground."""
    longer, aspect = random.integers(64, 161), random.uniform(0.6, 1.0)
    sides = [int(longer) * SUPERSAMPLING, round(longer * aspect) * SUPERSAMPLING]
    width, height = random.permutation(sides).tolist()
    reach = random.uniform(*SIZES[words["size"]]) * min(width, height)
    centre_x, centre_y = (random.uniform(reach, side - reach) for side in (width, height))
    outline = rotate(OUTLINES[shape], random.uniform(-0.5, 0.5))
    colour = tuple(int(c) for c in np.clip(COLOURS[words["colour"]] + random.integers(-20, 21, size=3), 0, 255))
    image = Image.new("RGBA", (width, height), (*colour, 0))
    corners = [(centre_x + x * reach, centre_y + y * reach) for x, y in outline]
    ImageDraw.Draw(image).polygon(corners, fill=(*colour, 255))
    image = image.reduce(SUPERSAMPLING)
    if random.random() < BLURRED_SHARE:
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.25, 0.4) * reach / SUPERSAMPLING))
    return image


def on_ground(random: np.random.Generator, image: Image.Image, ground: str) -> Image.Image:
    """Lays an image on a coloured ground and adds the noise of a cheap camera, as RGB."""
    flat = Image.new("RGBA", image.size, (*BACKGROUNDS[ground], 255))
    flat.alpha_composite(image)
    pixels = np.asarray(flat.convert("RGB"), np.float32)
    grain = random.standard_normal(pixels.shape[:2], np.float32) * random.uniform(2, 14)
    return Image.fromarray(np.clip(pixels + grain[:, :, None], 0, 255).astype(np.uint8))


def encode(random: np.random.Generator, image: Image.Image, stored: str) -> bytes:
    """Stores an image as JPEG or PNG bytes, in the way that is named in `FORMATS`."""
    buffer = io.BytesIO()
    if "grey" in stored:
        image = image.convert("L")
    if stored.endswith("png"):
        image.save(buffer, "PNG", compress_level=3)
        return buffer.getvalue()
    exif = Image.Exif()
    if stored == "exif_jpeg":
        orientation = int(random.choice(list(TURNS)))
        exif[EXIF_ORIENTATION] = orientation
        image = image.transpose(TURNS[orientation])
    image.save(buffer, "JPEG", quality=int(random.integers(75, 96)), exif=exif)
    return buffer.getvalue()


def example(seed: int, index: int) -> tuple[str, bytes, str, str]:
    """Makes one image: its file name, bytes, caption and label. It depends on the seed and its own number alone."""
    random = np.random.default_rng([seed, index])
    shape = str(random.choice(list(OUTLINES)))
    stored = choose(random, FORMATS)
    words = {
        "size": str(random.choice(list(SIZES))),
        "colour": str(random.choice(list(COLOURS))),
        "ground": str(random.choice(list(BACKGROUNDS))),
    }
    image = draw(random, shape, words)
    if stored == "rgba_png":
        words["ground"] = "transparent"
    else:
        image = on_ground(random, image, words["ground"])
    if "grey" in stored:
        words["colour"] = "grey"
    extension = "png" if stored.endswith("png") else "jpg"
    return f"{index:05d}.{extension}", encode(random, image, stored), caption(random, shape, words), shape


BREAK: dict[str, Callable[[bytes], bytes | None]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "not an image": lambda content: b"<html><body>404 Not Found</body></html>\n",
    "empty": lambda content: b"",
    "missing": lambda content: None,
    "without a label": lambda content: content,
}
"""The ways to break a file, each as a function of its content."""


def plan_broken(images: int, seed: int) -> dict[int, str]:
    """Draws which images are broken and how: at least one of each kind."""
    each = max(1, round(images * BROKEN_SHARE))
    random = np.random.default_rng([seed, images, 1])
    chosen = random.choice(images, size=each * len(BREAK), replace=False)
    return {int(index): list(BREAK)[i % len(BREAK)] for i, index in enumerate(chosen)}


def generate(folder: Path, images: int, seed: int) -> Counter[str]:
    """Fills a new or empty folder with images and, last, `metadata.csv` (file_name, text, label).

    Returns:
        How many rows are good, and how many are broken in each way.

    Raises:
        ValueError: the folder is not empty, or there are too few images for one of each kind of broken one.
    """
    if images < len(BREAK):
        raise ValueError(f"{images} images: at least {len(BREAK)} are needed, for one broken in each way")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder, or remove it first")
    broken = plan_broken(images, seed)
    rows = []
    for index in range(images):
        name, content, text, label = example(seed, index)
        how = broken.get(index)
        kept = BREAK[how](content) if how else content
        if kept is not None:
            (folder / name).write_bytes(kept)
        rows.append((name, text, "" if how == "without a label" else label))
    with (folder / "metadata.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("file_name", "text", "label"), *rows])
    return Counter({"good": images - len(broken), **Counter(broken.values())})


def main() -> None:
    """Reads the command line, generates and prints the counts."""
    parser = argparse.ArgumentParser(description="Generates captioned images of shapes, a few of them broken.")
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    parser.add_argument("--images", type=int, default=3000, help="how many (default: 3000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other images (default: 0)")
    arguments = parser.parse_args()
    try:
        counts = generate(arguments.folder, arguments.images, arguments.seed)
    except (OSError, ValueError) as error:
        sys.exit(f"generate.py: {error}")
    print(f"{arguments.folder}: " + ", ".join(f"{count} {what}" for what, count in counts.items()))


if __name__ == "__main__":
    main()
