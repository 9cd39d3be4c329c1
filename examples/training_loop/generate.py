"""Generates pictures of shapes with those that are broken, as examples/shapes does, if they are not there yet.

python examples/training_loop/generate.py demo/training_loop/data
"""

import argparse
import runpy
from pathlib import Path

SHAPES = Path(__file__).parents[1] / "shapes" / "generate.py"


def generate(folder: Path, pictures: int = 1500) -> None:
    """Writes the pictures and `metadata.csv`, which comes last; the same number gives the same files."""
    if not (folder / "metadata.csv").exists():
        runpy.run_path(str(SHAPES))["generate"](folder, pictures, seed=0)
    print(f"{folder}: {pictures} pictures")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates pictures of shapes.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
