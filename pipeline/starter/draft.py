"""Everything that a starter spec says, decided: the sources, the features, the key, the splits, the label; and why."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from pipeline.columns import Column, ColumnType
from pipeline.sources import AnySource
from pipeline.sources.base import Files, Source
from pipeline.sources.image_paths import IMAGE, LABEL, SPLIT
from pipeline.starter.boxes import guess_boxes
from pipeline.starter.choices import (
    FEW_ROWS,
    SHARES,
    feature_names,
    find_key,
    find_label,
    find_split,
    shares,
    split_values,
)
from pipeline.starter.columns import source_columns
from pipeline.starter.contents import UnknownDataError
from pipeline.starter.guess import LABELS, Guess, counted, distinct, feature, guess, guess_text, read, share_of, useless
from pipeline.starter.picture_folders import images_folder
from pipeline.starter.pictures import guess_pictures
from pipeline.starter.readings import Reading, Sample
from pipeline.starter.recognize import Found, recognize

SOURCE: TypeAdapter[Source] = TypeAdapter(AnySource)


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
    found, sample = _sample(files, recognize(files, path))
    split = None if found.split_names else find_split(sample)
    if split and split[0] in sample.columns.of_path:  # the folder of a class depends on it
        sample = Sample(sample.sources, files, {SPLIT: Column(ColumnType.CATEGORY, optional=True)})
    guesses = _guesses(sample)
    if split:
        guesses[split[0]] = useless(split[0], "decides the split", split[1])
    key = find_key(guesses)
    why_key = _why_key(found, guesses, key)
    if key is not None:
        guesses[key] = useless(key, "the key, which every record holds", guesses[key].reading)
    label = find_label(guesses)
    if label is not None:
        guesses[label] = as_label(guesses[label])
    names = feature_names([name for name, guess in guesses.items() if guess.kind])
    if not any(one.reading.rows for one in guesses.values()):
        raise UnknownDataError(f"{path} holds no row")
    if not names:
        raise UnknownDataError(f"{path} has no column that a feature can be made of: {_reasons(guesses)}")
    return Draft(
        found=found,
        sample=sample,
        key=Chosen(key, why_key),
        splits=_splits(found, guesses, split),
        split_by=_split_by(split),
        features={names[name]: _named(guess, names) for name, guess in guesses.items() if guess.kind},
        left=[guess for guess in guesses.values() if not guess.kind],
        label=_label(guesses, label and names[label]),
    )


def _sample(files: Files, found: Found) -> tuple[Found, Sample]:
    """The sources with all their options, and a sample of their rows."""
    if found.alternative is not None:
        other = Found([found.alternative])
        beside = Sample(_sources(other), files)
        folder = images_folder(beside, files)
        if folder is not None:
            return _with_images(other, files, folder)
        if any(guess_pictures(beside, name) for name in beside.names):
            return other, beside
    sample = Sample(_sources(found), files)
    found = _without_unlabelled(found, sample)
    sample = Sample(_sources(found), files)
    folder = images_folder(sample, files)
    return (found, sample) if folder is None else _with_images(found, files, folder)


def _sources(found: Found) -> list[Source]:
    return [SOURCE.validate_python(dict(options)) for options in found.sources]


def _with_images(found: Found, files: Files, folder: str) -> tuple[Found, Sample]:
    sources = [{**options, "images": folder} for options in found.sources]
    found = replace(found, sources=sources, why={**found.why, "images": "where the pictures lie that the rows name"})
    return found, Sample(_sources(found), files)


def _without_unlabelled(found: Found, sample: Sample) -> Found:
    """Leaves out the sources that lack a label which another has, as the test sets of competitions do."""
    if len(found.sources) < 2:
        return found
    columns = [set(source_columns(source, sample.files).names) for source in sample.sources]
    label = next((name for name in LABELS if any(name in some for some in columns)), None)
    kept = [options for options, some in zip(found.sources, columns, strict=True) if label is None or label in some]
    left = [str(options["path"]) for options in found.sources if options not in kept]
    told = [found.left_out, *(f"{posixpath.basename(path)}, which has no column {label}" for path in left)]
    if len(kept) == 1:
        kept = [{option: value for option, value in kept[0].items() if option != "split"}]
    why = {option: reason for option, reason in found.why.items() if option != "format" or not left}
    return replace(found, sources=kept, why=why, left_out="; ".join(filter(None, told)))


def _guesses(sample: Sample) -> dict[str, Guess]:
    """What each column is, pictures first, since boxes are theirs; of one that is inside another only one of them."""
    guesses: dict[str, Guess] = {}
    for name in sample.names:
        if _inside(name, guesses) or (name in sample.columns.of_path and name != IMAGE):
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


def _why_key(found: Found, guesses: Mapping[str, Guess], key: str | None) -> str:
    if key is not None:
        return f"different in {guesses[key].reading.of}"
    options = found.sources[0]
    if options["format"] == "image_folder":
        return "without one, a picture's path"
    if options["format"] == "webdataset":
        return "without one, the sample's name"
    if options.get("document") == "file":
        return "without one, the file's path"
    return "without one, the digest of the row: a row that changes is another row"


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


def _label(guesses: Mapping[str, Guess], name: str | None) -> Chosen:
    if name is not None:
        return Chosen(name, "what a model learns to predict; every other feature is its input")
    return Chosen(
        None, "no column is called label, class, category, target, …: name a feature of kind category or number"
    )


def _reasons(guesses: Mapping[str, Guess]) -> str:
    return "; ".join(f"{name}: {guess.why.get('kind', guess.kind)}" for name, guess in guesses.items()) or "it has none"
