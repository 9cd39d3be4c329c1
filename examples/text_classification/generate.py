"""Generates `reviews.csv`: short reviews, some of several lines, with the stars that they give.

python examples/text_classification/generate.py demo/text_classification/data
"""

import csv
import sys
from pathlib import Path

import numpy as np

GOOD, BAD = ["great", "lovely", "fast", "sturdy", "cheap"], ["poor", "ugly", "slow", "broken", "dear"]
THINGS = ["lamp", "chair", "phone", "kettle", "bag", "clock", "table"]


def review(random: np.random.Generator) -> tuple[str, str]:
    """A review and whether it is good: `not` turns a word around, so that pairs of words tell more than words."""
    good = bool(random.integers(2))
    words = []
    for _ in range(random.integers(1, 4)):
        turned = bool(random.integers(2))
        words.append(("not " if turned else "very ") + str(random.choice(BAD if good == turned else GOOD)))
    text = f"The {random.choice(THINGS)} is {', '.join(words)}." + (
        '\nI said so, "really".' if random.integers(4) == 0 else ""
    )
    return text, "good" if good else "bad"


def generate(folder: Path, rows: int = 3000) -> None:
    """Writes the file into a new folder; the same number gives the same file."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    with (folder / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review", "verdict"])
        writer.writerows([f"r{number}", *review(random)] for number in range(rows))


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
