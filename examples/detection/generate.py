"""Generates pictures with one or two coloured shapes and `rows.jsonl` with COCO boxes and their categories.

python examples/detection/generate.py demo/detection/data
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

NAMES = ["square", "disc"]


def generate(folder: Path, pictures: int = 1200) -> None:
    """Fills a new folder; the same number gives the same files. The first object is the largest."""
    (folder / "images").mkdir(parents=True)
    random = np.random.default_rng(0)
    rows = []
    for number in range(pictures):
        width, height = random.integers(60, 120, 2).tolist()
        picture = Image.new("RGB", (width, height), tuple(random.integers(0, 90, 3).tolist()))
        boxes, names = [], []
        for side in sorted(random.integers(12, 40, random.integers(1, 3)).tolist(), reverse=True)[:1]:
            x, y = int(random.integers(0, width - side)), int(random.integers(0, height - side))
            name = NAMES[random.integers(2)]
            draw = ImageDraw.Draw(picture)
            shape = draw.rectangle if name == "square" else draw.ellipse
            shape((x, y, x + side - 1, y + side - 1), fill=tuple(random.integers(150, 256, 3).tolist()))
            boxes.append([x, y, side, side])  # COCO: x, y, width, height in pixels
            names.append(name)
        file = f"images/{number:04d}.jpg"
        picture.save(folder / file, quality=90)
        rows.append({"image": file, "objects": {"bbox": boxes, "category": names}})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
