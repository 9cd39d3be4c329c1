"""Generates `stories.txt`: stories in a small language, one a line.

python examples/language_model/generate.py demo/language_model/data
"""

import argparse
from pathlib import Path

import numpy as np

WHO = ["the miller", "a fox", "the old queen", "my neighbour", "the ferryman"]
DOES = ["carries", "loses", "finds", "sells", "hides"]
WHAT = ["a golden key", "three loaves of bread", "the blue lantern", "a letter"]
WHERE = ["in the forest", "by the river", "under the bridge", "at the market"]


def sentence(random: np.random.Generator) -> str:
    """Makes one of the 400 sentences of the language."""
    return " ".join(str(random.choice(part)) for part in (WHO, DOES, WHAT, WHERE)) + "."


def generate(folder: Path, stories: int = 1200) -> None:
    """Writes the file into a folder; the same number gives the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    lines = [" ".join(sentence(random) for _ in range(random.integers(3, 7))) for _ in range(stories)]
    (folder / "stories.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{folder}: stories.txt with {stories} stories")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates a file of stories.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
