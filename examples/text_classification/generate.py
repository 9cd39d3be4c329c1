"""Generates `reviews.csv`: short reviews, some of several lines, with their verdicts.

python examples/text_classification/generate.py demo/text_classification/data
"""

import argparse
import csv
from pathlib import Path

import numpy as np

GOOD, BAD = ["great", "lovely", "fast", "sturdy", "cheap"], ["poor", "ugly", "slow", "broken", "dear"]
THINGS = ["lamp", "chair", "phone", "kettle", "bag", "clock", "table"]


def review(random: np.random.Generator) -> tuple[str, str]:
    """Makes a review and its verdict: `not` reverses a word, complaints are longer, one verdict in 20 is wrong."""
    good = bool(random.integers(2))
    says = []
    for _ in range(random.integers(1, 4 if good else 6)):
        turned = bool(random.integers(2))
        says.append(("not " if turned else "very ") + str(random.choice(GOOD if good != turned else BAD)))
    more = '\nI said so, "really".' if random.integers(4) == 0 else ""
    slip = random.random() < 0.05
    return f"The {random.choice(THINGS)} is {', '.join(says)}.{more}", "good" if good != slip else "bad"


def generate(folder: Path, rows: int = 3000) -> None:
    """Writes the file into a folder; the same number gives the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    with (folder / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "review", "verdict"])
        writer.writerows([f"r{number}", *review(random)] for number in range(rows))
    print(f"{folder}: reviews.csv with {rows} rows")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates a file of reviews.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
