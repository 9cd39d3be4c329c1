"""Generates images of one to three shapes, and `rows.jsonl` with their COCO boxes and categories.

python examples/detection/generate.py demo/detection/data
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

CATEGORIES = ["disc", "square"]


def draw_image(random: np.random.Generator) -> tuple[Image.Image, dict[str, list[Any]]]:
    """Draws an image of any size; gives its objects too, each in a quarter of its own."""
    width, height = random.integers(64, 112, 2).tolist()
    image = Image.new("RGB", (width, height), tuple(random.integers(0, 90, 3).tolist()))
    draw = ImageDraw.Draw(image)
    boxes, categories = [], []
    for quarter in random.choice(4, random.integers(1, 4), replace=False).tolist():
        side = int(random.integers(14, 33))
        left = quarter % 2 * (width // 2) + int(random.integers(width // 2 - side + 1))
        top = quarter // 2 * (height // 2) + int(random.integers(height // 2 - side + 1))
        category = CATEGORIES[random.integers(2)]
        shape = draw.ellipse if category == "disc" else draw.rectangle
        shape((left, top, left + side - 1, top + side - 1), fill=tuple(random.integers(150, 256, 3).tolist()))
        boxes.append([left, top, side, side])  # COCO: x, y, width, height in pixels
        categories.append(category)
    return image, {"bbox": boxes, "category": categories}


def generate(folder: Path, images: int = 1000) -> None:
    """Fills a folder; the same number gives the same files."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    rows = []
    for number in range(images):
        image, objects = draw_image(random)
        file = f"images/{number:04d}.jpg"
        image.save(folder / file, quality=90)
        rows.append({"image": file, "objects": objects})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{folder}: {images} images, and rows.jsonl")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates images of shapes with boxes.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
