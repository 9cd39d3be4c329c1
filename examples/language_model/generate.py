"""Generates `stories.txt`: a small language of stories, one a line.

python examples/language_model/generate.py demo/language_model/data
"""

import sys
from pathlib import Path

import numpy as np

WHO = ["the miller", "a fox", "the old queen", "my neighbour", "the ferryman"]
DOES = ["carries", "loses", "finds", "sells", "hides"]
WHAT = ["a golden key", "three loaves of bread", "the blue lantern", "a letter"]
WHERE = ["in the forest", "by the river", "under the bridge", "at the market"]


def sentence(random: np.random.Generator) -> str:
    """One sentence of the language."""
    return " ".join(str(random.choice(part)) for part in (WHO, DOES, WHAT, WHERE)) + "."


def generate(folder: Path, stories: int = 2000) -> None:
    """Writes the file into a new folder; the same number gives the same file."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    lines = [" ".join(sentence(random) for _ in range(random.integers(1, 6))) for _ in range(stories)]
    (folder / "stories.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
