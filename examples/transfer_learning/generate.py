"""Generates images of shapes with two labels each: the shape, and its kind of outline.

python examples/transfer_learning/generate.py demo/transfer_learning/data
"""

import argparse
import csv
import runpy
from pathlib import Path

import numpy as np

SHAPES = runpy.run_path(str(Path(__file__).parents[1] / "shapes" / "generate.py"))


def draw_image(number: int) -> tuple[bytes, str]:
    """Draws a large shape on a white ground; gives the JPEG and the shape's name."""
    random = np.random.default_rng([1, number])
    shape = str(random.choice(list(SHAPES["OUTLINES"])))
    words = {"size": "large", "colour": str(random.choice(list(SHAPES["COLOURS"])))}
    drawn = SHAPES["on_ground"](random, SHAPES["draw"](random, shape, words), "white")
    return SHAPES["encode"](random, drawn, "jpeg"), shape


def generate(folder: Path, images: int = 900) -> None:
    """Writes images and `metadata.csv` into a folder; the same number gives the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(images):
        name = f"{number:04}.jpg"
        encoded, shape = draw_image(number)
        (folder / name).write_bytes(encoded)
        rows.append((name, shape, SHAPES["HINTS"][shape]))
    with (folder / "metadata.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("file_name", "shape", "outline"), *rows])
    print(f"{folder}: {images} images, metadata.csv")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates images of shapes with two labels each.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
