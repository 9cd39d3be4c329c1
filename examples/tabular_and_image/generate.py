"""Generates `houses.csv` and a photo of each house: the price follows from both.

python examples/tabular_and_image/generate.py demo/tabular_and_image/data
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CITIES, STATES = {"Aarlen": 900, "Bruck": 1400, "Como": 2100}, {"old": 0.8, "new": 1.2}


def photo(storeys: int, random: np.random.Generator) -> Image.Image:
    """Draws a house of one to four storeys."""
    image = Image.new("RGB", (40, 60), (150, 190, 230))
    draw = ImageDraw.Draw(image)
    for top in range(47, 47 - 11 * storeys, -11):
        draw.rectangle((6, top, 33, top + 10), fill=tuple(random.integers(90, 220, 3).tolist()))
        draw.rectangle((10, top + 3, 15, top + 8), fill=(250, 240, 150))
    return image


def generate(folder: Path, rows: int = 1500) -> None:
    """Writes table and photos into a folder; the same number gives the same files."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    with (folder / "houses.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "owner", "photo", "area", "rooms", "city", "state", "price"])
        for number in range(rows):
            storeys, area = int(random.integers(1, 5)), round(float(random.uniform(40, 160)), 1)
            city, state = str(random.choice(list(CITIES))), str(random.choice(list(STATES)))
            path = f"images/{number:04d}.png"
            photo(storeys, random).save(folder / path)
            rooms = "" if random.random() < 0.2 else round(area / 22)  # one in five is not known
            price = CITIES[city] * STATES[state] * area * (0.7 + 0.2 * storeys) * random.normal(1, 0.05)
            owner = f"owner-{random.integers(rows // 3)}"
            writer.writerow([f"h{number}", owner, path, area, rooms, city, state, round(price)])
    print(f"{folder}: houses.csv with {rows} rows, and their photos")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates a table of houses with photos.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
