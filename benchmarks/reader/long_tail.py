"""Makes documents of very different lengths, the same each time: most are short, one in twenty has over 400 words."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WORDS = 19_998
"""Different words; with padding and the unknown word 20,000 ids."""
LABELS = 5
SHORT_MEAN = 55
LONG = (401, 450)
LONG_SHARE = 0.05
AT_ONCE = 10_000


def documents(count: int) -> Iterator[tuple[str, int]]:
    """Gives documents and labels; words are as unevenly frequent as real ones (Zipf's law)."""
    random = np.random.default_rng(0)
    words = np.array([f"w{rank}" for rank in range(WORDS)], object)
    shares = np.cumsum(1 / np.arange(1, WORDS + 1))
    for first in range(0, count, AT_ONCE):
        rows = min(AT_ONCE, count - first)
        short = random.gamma(2, SHORT_MEAN / 2, rows).astype(int).clip(1, LONG[0] - 1)
        lengths = np.where(random.random(rows) < LONG_SHARE, random.integers(*LONG, rows, endpoint=True), short)
        drawn = words[np.searchsorted(shares, random.random(lengths.sum()) * shares[-1])]
        labels = random.integers(LABELS, size=rows)
        for row, label in zip(np.split(drawn, np.cumsum(lengths)[:-1]), labels, strict=True):
            yield " ".join(row), int(label)


def write_documents(path: Path, count: int) -> None:
    """Writes JSON Lines of id, label and text."""
    with path.open("w", encoding="utf-8") as file:
        for number, (text, label) in enumerate(documents(count)):
            file.write(json.dumps({"id": str(number), "label": f"class{label}", "text": text}) + "\n")
