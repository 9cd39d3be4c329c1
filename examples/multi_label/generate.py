"""Generates `articles.parquet`: headlines, each with any number of topics.

python examples/multi_label/generate.py demo/multi_label/data
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

TOPICS = {
    "sport": ["match", "goal", "team", "record"],
    "money": ["bank", "market", "price", "tax"],
    "weather": ["storm", "rain", "heat", "snow"],
    "science": ["planet", "cell", "theory", "probe"],
}
FILLERS = ["new", "today", "says", "after", "big", "the", "of"]


def generate(folder: Path, rows: int = 3000) -> None:
    """Writes the file into a new folder; the same number gives the same file."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    headlines, topics = [], []
    for _ in range(rows):
        chosen = [topic for topic in TOPICS if random.random() < 0.35]
        words = [str(random.choice(TOPICS[topic])) for topic in chosen] + list(random.choice(FILLERS, 3))
        headlines.append(" ".join(random.permutation(words)))
        topics.append(chosen)
    table = pa.table({"id": range(rows), "headline": headlines, "topics": pa.array(topics, pa.list_(pa.string()))})
    pa.parquet.write_table(table, folder / "articles.parquet", row_group_size=500)


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
