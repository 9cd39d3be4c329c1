"""Generates `articles.parquet`: headlines, each with any number of topics.

python examples/multi_label/generate.py demo/multi_label/data
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOPICS = {
    "sport": ["match", "goal", "team", "record"],
    "money": ["bank", "market", "price", "tax"],
    "weather": ["storm", "rain", "heat", "snow"],
    "science": ["planet", "cell", "theory", "probe"],
}
FILLERS = ["new", "today", "says", "after", "big", "the", "of"]


def headline(random: np.random.Generator) -> tuple[str, list[str]]:
    """Makes a headline and its topics: it has a word of each, and one tag in 20 is left out."""
    topics = [topic for topic in TOPICS if random.random() < 0.35]
    words = [random.choice(TOPICS[topic]) for topic in topics] + list(random.choice(FILLERS, 3))
    return " ".join(random.permutation(words)), [topic for topic in topics if random.random() > 0.05]


def generate(folder: Path, rows: int = 3000) -> None:
    """Writes the file into a folder; the same number gives the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    headlines, topics = zip(*(headline(random) for _ in range(rows)), strict=True)
    tags = pa.array(topics, pa.list_(pa.string()))
    table = pa.table({"id": range(rows), "headline": headlines, "topics": tags})
    pq.write_table(table, folder / "articles.parquet", row_group_size=500)
    print(f"{folder}: articles.parquet with {rows} rows")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates a file of headlines with topics.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
