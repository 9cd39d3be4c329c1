"""Chooses among the columns: the features and their names, the key, the label, and what decides the splits."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from recordmill.pipeline.init.formats import UnknownDataError
from recordmill.pipeline.init.guess import (
    FEW_ROWS,
    FITS,
    ID,
    LABELS,
    Guess,
    distinct,
    feature,
    guess,
    guess_text,
    left_out,
    plain_name,
    share,
    share_of,
)
from recordmill.pipeline.init.images import guess_boxes, guess_image
from recordmill.pipeline.init.recognize import SPLITS, Found, counted
from recordmill.pipeline.init.sample import Reading, Sample
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.image_folder.image_paths import IMAGE, LABEL, SPLIT
from recordmill.pipeline.spec.model import RESERVED

LONGEST = 100
PARTS = ("missing", "length", "orientation")
"""The tensors that features store beside themselves, as `<feature>_<part>`."""
SURE_IDS = ("id", "key", "uuid")
LABEL_KINDS = ("category", "number", "categories")
BY_HASH = "by a hash of the key"
SHARES = {"train": 80, "validation": 10, "test": 10}


@dataclass(frozen=True)
class Chosen:
    """A value of the spec, and why; None where the spec does without."""

    value: Any
    why: str


@dataclass(frozen=True)
class Draft:
    """A spec before it is written."""

    found: Found
    sample: Sample
    key: Chosen
    splits: Chosen
    split_by: Chosen
    features: Mapping[str, Guess]
    """By their names."""
    left: Mapping[str, Guess]
    """The columns that no feature reads, by the names that their features would have."""
    label: Chosen


def make_draft(found: Found, sample: Sample) -> Draft:
    """Decides everything that the spec says.

    Raises:
        UnknownDataError: no feature can be made of any column.
    """
    split = None if found.split_names else _find_split(sample)
    if split and split[0] in sample.of_path:  # the class that a folder names depends on it
        sample = sample.with_columns({SPLIT: Column(ColumnType.CATEGORY, optional=True)})
    key = _find_key(sample)
    guesses = _guesses(sample)
    for column, why in ((split, "decides the split"), (key, "the key, which every record holds")):
        if column:
            guesses[column[0]] = left_out(column[0], why, column[1])
    label = _find_label(guesses)
    if label and not _is_rare(guesses[label]):
        guesses[label] = _as_label(guesses[label])
    names = feature_names(guesses)
    features = {names[column]: _named(one, names) for column, one in guesses.items() if one.kind}
    if not features:
        raise UnknownDataError(f"{found.sources[0]['path']} {_no_feature(guesses)}")
    return Draft(
        found=found,
        sample=sample,
        key=_key(found, key),
        splits=_splits(found, guesses, split),
        split_by=_split_by(split),
        features=features,
        left={names[column]: _named(one, names) for column, one in guesses.items() if not one.kind},
        label=_label(guesses, label, names),
    )


def valid_name(text: str, default: str) -> str:
    """The nearest name that a spec takes: letters, digits and underscores, a letter first.

    >>> valid_name("2024 müll-data!", "dataset")
    'mull_data'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_").lstrip("0123456789_")
    return name[:LONGEST] or default


def feature_names(columns: Iterable[str]) -> dict[str, str]:
    """A name for the feature of each column: the column's own where it may be, of a part the last of its name."""
    names: dict[str, str] = {}
    for number, column in enumerate(columns, 1):
        last = IMAGE if ";" in column else valid_name(column.rpartition(".")[2], "")
        whole = valid_name(column, f"column_{number}")
        wishes = [last, whole, f"{whole}_column", *(f"{whole}_{count}" for count in range(2, number + 2))]
        names[column] = next(wish for wish in wishes if wish and _is_free(wish, names.values()))
    return names


def _is_free(name: str, taken: Iterable[str]) -> bool:
    parts = {f"{other}_{part}" for other in taken for part in PARTS}
    own = {f"{name}_{part}" for part in PARTS}
    return name not in {*taken, *parts, *RESERVED} and own.isdisjoint(taken)


def _guesses(sample: Sample) -> dict[str, Guess]:
    """A guess of each column, images first, since boxes lie in them; of a column inside another only one of them."""
    guesses = {name: left_out(name, why, Reading()) for name in sample.names if (why := _unreadable(name))}
    image: str | None = None
    for attempt in ("image", "other"):
        for name in sample.names:
            if name in guesses or any(name.startswith(f"{other}.") and one.kind for other, one in guesses.items()):
                continue
            if attempt == "image":
                found = guess_image(sample, name) if name == IMAGE or name not in sample.of_path else None
                image = image or (name if found and found.kind == "image" else None)
            else:
                found = (guess_boxes(sample, name, image) if image else None) or _guess_other(sample, name)
            if found:
                guesses[name] = found
    return guesses


def _unreadable(name: str) -> str:
    """Why no feature can read a column, by its name."""
    if not name:
        return "a column without a name"
    return "a name that begins with @ is kept for the build's own columns" if name.startswith("@") else ""


def _guess_other(sample: Sample, name: str) -> Guess | None:
    if name not in sample.of_path:
        return guess_text(sample, name) if sample.sources[0].format == "text" else guess(sample, name)
    if name != LABEL:
        return None
    classes = sample.read(LABEL, ColumnType.CATEGORY)
    if 2 * classes.missing > classes.rows or not classes.values:
        return None
    if len(classes.distinct) < 2:
        return left_out(LABEL, f"one folder alone, {next(iter(classes.distinct))}", classes)
    return feature(LABEL, "category", f"the folders: {distinct(classes)}", classes)


def _find_key(sample: Sample) -> tuple[str, Reading] | None:
    """The column that names a row: one that is called so, and has a value of its own in each sampled row."""
    names = [name for name in sample.names if ID.fullmatch(name)]
    found = {name: sample.read(name, ColumnType.CATEGORY) for name in names}
    unique = [name for name, values in found.items() if len(values.distinct) == values.rows > 0]
    best = min(unique, key=lambda name: (name.lower() not in SURE_IDS, len(name)), default=None)
    return None if best is None else (best, found[best])


def _key(found: Found, key: tuple[str, Reading] | None) -> Chosen:
    if key:
        return Chosen(key[0], f"different in {key[1].of}")
    form, by_file = found.sources[0]["format"], found.sources[0].get("document") == "file"
    others = {"image_folder": "an image's path", "webdataset": "the sample's name"}
    default = "the file's path" if by_file else others.get(form, "the digest of the row's content")
    return Chosen(None, f"without one, {default}")


def _find_label(guesses: Mapping[str, Guess]) -> str | None:
    """The column that a model learns to predict, by its name; a list only where it is of the row, not of a part."""
    found = [name for name, one in guesses.items() if one.kind in LABEL_KINDS]
    known = {plain_name(name).lower(): name for name in reversed(found) if name == plain_name(name)}
    inner = {plain_name(name).lower(): name for name in reversed(found) if guesses[name].kind != "categories"}
    return next((names[label] for label in LABELS for names in (known, inner) if label in names), None)


def _as_label(one: Guess) -> Guess:
    """A feature as the label, which cannot be optional."""
    if "optional" not in one.options:
        return one
    options = {option: value for option, value in one.options.items() if option != "optional"}
    lacking = share_of(one.reading.missing, one.reading.rows, one.reading.of)
    kind = f"{one.why['kind']}; not in {lacking}, which would be rejects, since a label cannot be optional"
    return replace(one, options=options, why={**one.why, "kind": kind})


def _is_rare(one: Guess) -> bool:
    """Whether so many rows lack a column that it should be no label: they would be rejects."""
    return one.reading.missing > (1 - FITS) * one.reading.rows


def _label(guesses: Mapping[str, Guess], column: str | None, names: Mapping[str, str]) -> Chosen:
    if column is None:
        missing = "no column is called label, class, category, target, …"
        return Chosen(None, f"{missing}: name a feature of kind category or number")
    if _is_rare(guesses[column]):
        return Chosen(None, f"{names[column]}, which many rows lack, cannot be one: a label is not optional")
    return Chosen(names[column], "what a model learns to predict; every other feature is its input")


def _find_split(sample: Sample) -> tuple[str, Reading] | None:
    """The column that holds the split's name in each row."""
    for name in sample.names:
        names = sample.read(name, ColumnType.CATEGORY)
        words = {SPLITS.get(value.lower()) for value in names.distinct}
        if names.fit >= FITS and None not in words and "train" in words and not names.missing:
            return name, names
    return None


def _splits(found: Found, guesses: Mapping[str, Guess], split: tuple[str, Reading] | None) -> Chosen:
    if found.split_names:
        return Chosen({name: SHARES[name] for name in found.split_names}, "each source is one split")
    if split:
        return _shares(split[1])
    most = max((one.reading for one in guesses.values()), key=lambda reading: reading.rows)
    if most.is_all and most.rows < FEW_ROWS:
        return Chosen({"train": 100}, f"{counted(most.rows, 'row')}: too few to divide")
    return Chosen(SHARES, BY_HASH)


def _shares(names: Reading) -> Chosen:
    """The shares that the splits of a column have."""
    counts = Counter[str]()
    for value, count in names.distinct.items():
        counts[SPLITS[value.lower()]] += count
    there = [split for split in SHARES if split in counts]
    message = ", ".join(f"{split} {share(counts[split], counts.total())}" for split in there)
    others = "" if names.is_all else "; a row of another split would be a reject: add the split"
    splits = {split: max(1, round(100 * counts[split] / counts.total())) for split in there}
    return Chosen(splits, f"{message} of {names.of}{others}")


def _split_by(split: tuple[str, Reading] | None) -> Chosen:
    if split is None:
        return Chosen(None, "")
    name, names = split
    values: dict[str, list[str]] = {}
    for value in sorted(names.distinct):
        values.setdefault(SPLITS[value.lower()], []).append(value)
    is_plain = all(value.islower() for some in values.values() for value in some)
    given = {"values": {split: values[split] for split in SHARES if split in values}}
    return Chosen({"column": name, **({} if is_plain else given)}, f"holds {', '.join(sorted(names.distinct))}")


def _named(one: Guess, names: Mapping[str, str]) -> Guess:
    """A guess whose reference to another column is one to its feature."""
    doubts = [
        ({**options, "image": names[options["image"]]}, why) if "image" in options else (options, why)
        for options, why in one.doubts
    ]
    image = one.options.get("image")
    return replace(one, doubts=doubts, options=one.options if image is None else {**one.options, "image": names[image]})


def _no_feature(guesses: Mapping[str, Guess]) -> str:
    """Why nothing can be made of some columns."""
    if not any(one.reading.rows for one in guesses.values()):
        return "holds no row"
    return "has no column that a feature can be made of: " + "; ".join(
        f"{name}: {one.why['kind']}" for name, one in guesses.items()
    )
