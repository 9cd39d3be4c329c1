"""What is chosen among the columns: the features' names, the key, the label, and what decides the splits."""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipeline.init.column_sample import Reading, Sample
from recordmill.pipeline.init.guess_kind import FITS, ID, LABELS, Guess, plain_name, share
from recordmill.pipeline.init.recognize import SPLITS
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.globs import is_glob
from recordmill.pipeline.sources.image_folder.image_paths import IMAGE
from recordmill.pipeline.spec.model import RESERVED

GENERIC = {"data", "dataset", "files", "images", "imgs", "rows", "shards", "train"}
"""What a folder or a file is called whatever it holds: the folder above it tells more."""
LONGEST = 100
PARTS = ("missing", "length", "orientation")
"""What features store beside themselves, as `<feature>_<part>`."""
SURE_IDS = ("id", "key", "uuid")
NAMES = Column(ColumnType.CATEGORY, optional=True)
LABEL_KINDS = ("category", "number", "categories")
SHARES = {"train": 80, "validation": 10, "test": 10}


def valid_name(text: str, default: str) -> str:
    """The nearest name that a spec takes: letters, digits and underscores, a letter first.

    >>> valid_name("2024 müll-data!", "dataset")
    'mull_data'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_").lstrip("0123456789_")
    return name[:LONGEST] or default


def dataset_name(path: str) -> str:
    """A name for the data at an absolute path, or a URL: that of its last folder or file that tells something."""
    plain = re.sub(r"^\w+://", "", path)
    is_there = "://" not in path and os.path.exists(path)  # whatever its name holds, it is no glob
    parts = [part for part in plain.split("/") if is_there or not is_glob(part)]
    names = [valid_name(re.sub(r"\.[A-Za-z]\w*(\.\w+)?$", "", part), "") for part in reversed(parts)]
    return next((name for name in names if name and name.lower() not in GENERIC), "dataset")


def feature_names(columns: Sequence[str]) -> dict[str, str]:
    """A name for the feature of each column: the column's own where it may be, of a part the last of its name."""
    names: dict[str, str] = {}
    for column in columns:
        last = column.rpartition(".")[2]
        wishes = [IMAGE if ";" in column else valid_name(last, ""), valid_name(column, f"column_{len(names) + 1}")]
        wishes += [f"{wishes[1]}_column", *(f"{wishes[1]}_{number}" for number in range(2, len(columns) + 2))]
        names[column] = next(wish for wish in wishes if wish and _is_free(wish, names.values()))
    return names


def _is_free(name: str, taken: Any) -> bool:
    parts = {f"{other}_{part}" for other in taken for part in PARTS}
    own = {f"{name}_{part}" for part in PARTS}
    return name not in {*taken, *parts, *RESERVED} and own.isdisjoint(taken)


def find_key(sample: Sample) -> tuple[str, Reading] | None:
    """The column that names a row: one that is called so, and has a value of its own in each sampled row."""
    found = {name: sample.read(name, NAMES) for name in sample.names if ID.fullmatch(name)}
    unique = [name for name, names in found.items() if len(names.distinct) == names.rows > 0]
    best = min(unique, key=lambda name: (name.lower() not in SURE_IDS, len(name)), default=None)
    return None if best is None else (best, found[best])


def find_label(guesses: Mapping[str, Guess]) -> str | None:
    """The column that a model learns to predict, by its name; of lists only one that is named as several."""
    found = [name for name, guess in guesses.items() if guess.kind in LABEL_KINDS and _is_whole_row(name, guess)]
    known = {plain_name(name).lower(): name for name in reversed(found)}
    return next((known[label] for label in LABELS if label in known), None)


def _is_whole_row(name: str, guess: Guess) -> bool:
    """Whether a column tells of the row, not of one of the things in it."""
    return guess.kind != "categories" or (plain_name(name) == name and name.endswith("s"))


def find_split(sample: Sample) -> tuple[str, Reading] | None:
    """The column that holds the split's name in each row, and what it holds."""
    for name in sample.names:
        names = sample.read(name, NAMES)
        words = [SPLITS.get(value.lower()) for value in names.distinct]
        if names.fit >= FITS and words and None not in words and "train" in words and not names.missing:
            return name, names
    return None


def split_values(names: Reading) -> dict[str, list[str]]:
    """The values that stand for each split, by the split."""
    found: dict[str, list[str]] = {}
    for value in sorted(names.distinct):
        found.setdefault(SPLITS[value.lower()], []).append(value)
    return {split: found[split] for split in SHARES if split in found}


def shares(names: Reading) -> tuple[dict[str, int], str]:
    """The splits with the shares that they have, and the reason."""
    counts = Counter[str]()
    for value, count in names.distinct.items():
        counts[SPLITS[value.lower()]] += count
    total = counts.total()
    there = [split for split in SHARES if split in counts or not names.is_all]
    told = ", ".join(f"{split} {share(counts[split], total)}" for split in there)
    return {split: max(1, round(100 * counts[split] / total)) for split in there}, f"{told} of {names.of}"
