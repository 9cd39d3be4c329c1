"""Generates images of shapes, three times: beside palette masks, as Pascal VOC's are, and in COCO's JSON.

    python examples/segmentation/generate.py demo/segmentation/data

The JSON has each shape's polygon and its four corners as key points.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ["background", "square", "triangle"]
IGNORED = 255  # the outlines, which are neither shape nor background
PALETTE = [0, 0, 0, 128, 0, 0, 0, 128, 0, *[0] * 3 * 252, 224, 224, 192]  # VOC's colours of 0, 1, 2 and 255
POINTS = ["top", "right", "bottom", "left"]


def corners(random: np.random.Generator, name: str, size: tuple[int, int]) -> list[tuple[float, float]]:
    """Places a shape in an image: the corners of a square on its tip, or of a triangle."""
    radius = int(random.integers(10, 18))
    x, y = (int(random.integers(radius, side - radius)) for side in size)
    turns = range(4) if name == "square" else (0, 1, 3)
    around = ((math.sin(turn * math.pi / 2), -math.cos(turn * math.pi / 2)) for turn in turns)
    return [(round(x + radius * right), round(y + radius * down)) for right, down in around]


def draw_image(random: np.random.Generator) -> tuple[Image.Image, Image.Image, list[dict[str, Any]]]:
    """Draws an image with one or two shapes, its mask, and the shapes as COCO's annotations."""
    size = int(random.integers(64, 97)), int(random.integers(64, 97))
    image, mask = Image.new("RGB", size, tuple(random.integers(0, 100, 3).tolist())), Image.new("P", size)
    mask.putpalette(PALETTE)
    annotations = []
    for name in random.choice(CLASSES[1:], random.integers(1, 3)).tolist():
        shape = corners(random, name, size)
        ImageDraw.Draw(image).polygon(shape, fill=tuple(random.integers(130, 256, 3).tolist()))
        ImageDraw.Draw(mask).polygon(shape, fill=CLASSES.index(name), outline=IGNORED)
        left, top, right, bottom = (side for pick in (min, max) for side in map(pick, zip(*shape, strict=True)))
        points = [[*shape[at], 2] for at in range(2)] + [
            [*shape[2], 2] if len(shape) == 4 else [0, 0, 0],
            [*shape[-1], 2],
        ]
        annotations.append(
            {
                "category_id": CLASSES.index(name),
                "bbox": [left, top, right - left, bottom - top],
                "segmentation": [[side for corner in shape for side in corner]],
                "keypoints": [number for point in points for number in point],
                "num_keypoints": len(shape),
                "iscrowd": 0,
            }
        )
    return image, mask, annotations


def generate(folder: Path, images: int = 600) -> None:
    """Fills a folder; the same number gives the same files."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    random, listed, annotations = np.random.default_rng(0), [], list[dict[str, Any]]()
    for number in range(images):
        image, mask, found = draw_image(random)
        image.save(folder / f"images/{number:04d}.jpg", quality=90)
        mask.save(folder / f"masks/{number:04d}.png")
        listed.append({"id": number, "file_name": f"{number:04d}.jpg", "width": image.width, "height": image.height})
        annotations += [{"id": len(annotations) + at, "image_id": number} | each for at, each in enumerate(found)]
    categories = [{"id": at, "name": name, "keypoints": POINTS} for at, name in enumerate(CLASSES) if at]
    described = {"images": listed, "annotations": annotations, "categories": categories}
    (folder / "coco.json").write_text(json.dumps(described), encoding="utf-8")
    print(f"{folder}: {images} images, as many masks, and coco.json")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates images of shapes with masks.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
