"""Generates `houses.csv` with a picture of each house: the price follows from both.

python examples/tabular_and_image/generate.py demo/tabular_and_image/data
"""

import csv
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CITIES, STATES = {"Aarlen": 900, "Bruck": 1400, "Como": 2100}, {"old": 0.8, "new": 1.2}


def picture(storeys: int, random: np.random.Generator) -> Image.Image:
    """A house of some storeys."""
    found = Image.new("RGB", (40, 60), (150, 190, 230))
    draw = ImageDraw.Draw(found)
    for storey in range(storeys):
        top = 58 - 11 * (storey + 1)
        draw.rectangle((6, top, 33, top + 10), fill=tuple(random.integers(90, 220, 3).tolist()))
        draw.rectangle((10, top + 3, 15, top + 8), fill=(250, 240, 150))
    return found


def generate(folder: Path, rows: int = 1500) -> None:
    """Writes table and pictures into a new folder; the same number gives the same files."""
    (folder / "images").mkdir(parents=True)
    random = np.random.default_rng(0)
    with (folder / "houses.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "owner", "photo", "area", "rooms", "city", "state", "price"])
        for number in range(rows):
            storeys, area = int(random.integers(1, 5)), round(float(random.uniform(40, 160)), 1)
            city, state = str(random.choice(list(CITIES))), str(random.choice(list(STATES)))
            photo = f"images/{number:04d}.png"
            picture(storeys, random).save(folder / photo)
            price = CITIES[city] * STATES[state] * area * (0.7 + 0.2 * storeys) / 1000
            rooms = "" if random.random() < 0.2 else int(area // 22)  # a fifth of the rooms is not known
            owner = f"owner-{random.integers(rows // 3)}"
            writer.writerow([f"h{number}", owner, photo, area, rooms, city, state, round(price, 2)])


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
