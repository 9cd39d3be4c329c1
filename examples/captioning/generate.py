"""Generates images of two coloured bars with captions beside each: `0001.png`, and `0001.txt` of two or three lines.

python examples/captioning/generate.py demo/captioning/data
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (210, 40, 40), "green": (40, 160, 60), "blue": (40, 70, 200), "yellow": (230, 210, 40)}


def generate(folder: Path, images: int = 800) -> None:
    """Fills a folder; the same number gives the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(images):
        left, right = random.choice(list(COLOURS), 2)
        pixels = np.empty((32, 48, 3))
        pixels[:, :24], pixels[:, 24:] = COLOURS[left], COLOURS[right]
        noisy = np.clip(pixels + random.normal(0, 12, pixels.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{number:04d}.png")
        captions = [f"a {left} bar beside a {right} bar", f"{left} on the left and {right} on the right"]
        captions += [f"two {left} bars"] if left == right else []
        lines = [f"{caption}\n" for caption in random.permutation(captions)]
        (folder / f"{number:04d}.txt").write_text("".join(lines), encoding="utf-8")
    print(f"{folder}: {images} images with captions")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates images with captions.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
