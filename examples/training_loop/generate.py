"""Generates images of shapes, a few of them broken, as examples/shapes does, unless they are there already.

python examples/training_loop/generate.py demo/training_loop/data
"""

import argparse
import runpy
from pathlib import Path

SHAPES = Path(__file__).parents[1] / "shapes" / "generate.py"


def generate(folder: Path, images: int = 1500) -> None:
    """Writes the images and `metadata.csv`, which comes last; the same number gives the same files."""
    if not (folder / "metadata.csv").exists():
        runpy.run_path(str(SHAPES))["generate"](folder, images, seed=0)
    print(f"{folder}: {images} images")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates images of shapes.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
