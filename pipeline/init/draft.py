"""Everything that a starter spec says, decided: the sources, the features, the key, the splits, the label; and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recordmill.pipeline.init.choose import (
    NAMES,
    SHARES,
    feature_names,
    find_key,
    find_label,
    find_split,
    shares,
    split_values,
)
from recordmill.pipeline.init.column_sample import Reading, Sample
from recordmill.pipeline.init.guess_boxes import guess_boxes
from recordmill.pipeline.init.guess_images import guess_pictures
from recordmill.pipeline.init.guess_kind import (
    FEW_ROWS,
    FITS,
    Guess,
    counted,
    distinct,
    feature,
    guess,
    guess_text,
    read,
    share_of,
    useless,
)
from recordmill.pipeline.init.recognize import Found, recognize
from recordmill.pipeline.init.recognize_format import UnknownDataError
from recordmill.pipeline.init.samples import open_sample
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.sources.image_folder.image_paths import IMAGE, LABEL, SPLIT


@dataclass(frozen=True)
class Chosen:
    """A value of the spec, and why; None where the spec does without."""

    value: Any
    why: str


@dataclass(frozen=True)
class Draft:
    """A starter spec before it is written."""

    found: Found
    sample: Sample
    key: Chosen
    """A column."""
    splits: Chosen
    """Shares by split."""
    split_by: Chosen
    """The option of the same name."""
    features: Mapping[str, Guess]
    """By their names."""
    left: Sequence[Guess]
    """The columns that no feature reads."""
    label: Chosen
    """A feature."""


def make_draft(files: Files, path: str) -> Draft:
    """Looks at what lies at a path, and decides.

    Raises:
        UnknownDataError: no source reads it.
        SourceError: a source cannot read it.
        OSError: it cannot be read at all.
    """
    found, sample = open_sample(files, recognize(files, path))
    split = None if found.split_names else find_split(sample)
    if split and split[0] in sample.columns.of_path:  # the class that a folder names depends on it
        sample = Sample(sample.sources, files, {SPLIT: NAMES})
    key = find_key(sample)
    guesses = _guesses(sample)
    for column, what in ((split, "decides the split"), (key, "the key, which every record holds")):
        if column:
            guesses[column[0]] = useless(column[0], what, column[1])
    label = find_label(guesses)
    if label and not _is_rare(guesses[label]):
        guesses[label] = as_label(guesses[label])
    names = feature_names([name for name, one in guesses.items() if one.kind])
    if not names:
        raise UnknownDataError(f"{path} {_no_feature(guesses)}")
    return Draft(
        found=found,
        sample=sample,
        key=_key(found, key),
        splits=_splits(found, guesses, split),
        split_by=_split_by(split),
        features={names[name]: _named(guesses[name], names) for name in names},
        left=[one for one in guesses.values() if not one.kind],
        label=_label(guesses, label, names),
    )


def _guesses(sample: Sample) -> dict[str, Guess]:
    """What each column is, pictures first, since boxes are theirs; of one that is inside another only one of them."""
    guesses = {name: useless(name, why, Reading()) for name in sample.names if (why := _unreadable(name))}
    for name in sample.names:
        if name in guesses or _inside(name, guesses) or (name in sample.columns.of_path and name != IMAGE):
            continue
        found = guess_pictures(sample, name)
        if found is not None:
            guesses[name] = found
    image = next((name for name, one in guesses.items() if one.kind == "image"), None)
    for name in sample.names:
        if name in guesses or _inside(name, guesses):
            continue
        found = guess_boxes(sample, name, image) if image else None
        found = found or _guess_other(sample, name)
        if found is not None:
            guesses[name] = found
    return guesses


def _unreadable(name: str) -> str:
    """Why no feature can read a column, by its name."""
    if not name:
        return "a column without a name"
    return "a name that begins with @ is kept for the build's own columns" if name.startswith("@") else ""


def _inside(name: str, guesses: Mapping[str, Guess]) -> bool:
    """Whether a column is a part of one that is a picture."""
    return any(name.startswith(f"{other}.") and one.kind for other, one in guesses.items())


def _guess_other(sample: Sample, name: str) -> Guess | None:
    if name in sample.columns.of_path:
        return _folder_label(sample) if name == LABEL else None
    if sample.sources[0].format == "text":
        return guess_text(sample, name)
    return guess(sample, name)


def _folder_label(sample: Sample) -> Guess | None:
    """The class that a row's folder names; None where there are no such folders."""
    names = read(sample, LABEL, ColumnType.CATEGORY)
    if 2 * names.missing > names.rows or not names.values:
        return None
    if len(names.distinct) < 2:
        return useless(LABEL, f"one folder alone, {next(iter(names.distinct))}", names)
    return feature(LABEL, "category", f"the folders: {distinct(names)}", names)


def as_label(one: Guess) -> Guess:
    """A feature as the label: it cannot be optional, and each class counts."""
    if "optional" not in one.options:
        return one
    options = {option: value for option, value in one.options.items() if option != "optional"}
    lacking = share_of(one.reading.missing, one.reading.rows, one.reading.of)
    lack = f"not in {lacking}, which would be rejects, since a label cannot be optional"
    why = {option: reason for option, reason in one.why.items() if option != "optional"}
    return replace(one, options=options, why={**why, "kind": f"{why['kind']}; {lack}"})


def _named(one: Guess, names: Mapping[str, str]) -> Guess:
    """A guess whose reference to another column is one to its feature."""
    image = one.options.get("image")
    return one if image is None else replace(one, options={**one.options, "image": names[image]})


def _key(found: Found, key: tuple[str, Reading] | None) -> Chosen:
    if key is not None:
        return Chosen(key[0], f"different in {key[1].of}")
    options = found.sources[0]
    without = {"image_folder": "a picture's path", "webdataset": "the sample's name"}.get(options["format"])
    without = without or ("the file's path" if options.get("document") == "file" else "the digest of the row's content")
    return Chosen(None, f"without one, {without}")


def _splits(found: Found, guesses: Mapping[str, Guess], split: tuple[str, Reading] | None) -> Chosen:
    if found.split_names:
        return Chosen({name: SHARES[name] for name in found.split_names}, "each source is one split")
    if split:
        return Chosen(*shares(split[1]))
    most = max((guess.reading for guess in guesses.values()), key=lambda reading: reading.rows)
    if most.is_all and most.rows < FEW_ROWS:
        return Chosen({"train": 100}, f"{counted(most.rows, 'row')}: too few to divide")
    return Chosen(SHARES, "by a hash of the key")


def _split_by(split: tuple[str, Reading] | None) -> Chosen:
    if split is None:
        return Chosen(None, "")
    name, names = split
    values = split_values(names)
    told = f"holds {', '.join(sorted(names.distinct))}"
    plain = all(value.islower() for some in values.values() for value in some)
    return Chosen({"column": name} if plain else {"column": name, "values": values}, told)


def _label(guesses: Mapping[str, Guess], column: str | None, names: Mapping[str, str]) -> Chosen:
    if column is None:
        missing = "no column is called label, class, category, target, …"
        return Chosen(None, f"{missing}: name a feature of kind category or number")
    if _is_rare(guesses[column]):
        return Chosen(None, f"{names[column]}, which many rows lack, cannot be one: a label is not optional")
    return Chosen(names[column], "what a model learns to predict; every other feature is its input")


def _is_rare(one: Guess) -> bool:
    """Whether so many rows lack a column that it should be no label: they would be rejects."""
    return one.reading.missing > (1 - FITS) * one.reading.rows


def _no_feature(guesses: Mapping[str, Guess]) -> str:
    """Why nothing can be made of some columns."""
    if not any(one.reading.rows for one in guesses.values()):
        return "holds no row"
    told = "; ".join(f"{name}: {one.why['kind']}" for name, one in guesses.items())
    return f"has no column that a feature can be made of: {told}"
