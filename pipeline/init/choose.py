"""Chooses among the columns: the features and their names, the key, the label, and what decides the splits."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from recordmill.pipeline.init.classes import Codes, find_codes, index_names, name_doubts, with_classes
from recordmill.pipeline.init.doubts import PART_FOLDER, Doubt, box_doubts, column_doubts, value_doubts
from recordmill.pipeline.init.guess import FITS, ID, Choice, Guess, distinct, feature, guess, is_id, label_of, left_out
from recordmill.pipeline.init.images import Answers, guess_boxes, guess_image
from recordmill.pipeline.init.recognize import Recognized, UnknownDataError
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.formats.image_fields import IMAGE, LABEL, SPLIT
from recordmill.pipeline.spec.model import RESERVED
from recordmill.pipeline.spec.split_by import SPLITS

LONGEST = 100
PARTS = ("missing", "length", "orientation")  # suffixes of the other tensors that features store, as `<feature>_<part>`
SURE_IDS = ("id", "key", "uuid")
SHARES = {"train": 80, "validation": 10, "test": 10}
DIVIDED_ROWS = 100  # with fewer, a split of 10 % may be empty
FEW_GROUPS = 10  # with fewer, as of hospitals, hardly any shares can be met

Named = tuple[str, Reading] | None
"""A column, and its values as names."""


@dataclass(frozen=True)
class Draft:
    """A spec before it is written."""

    data: Recognized
    rows: Mapping[str, Choice]
    """The options of what names a row and what its split is."""
    features: Mapping[str, Guess]
    unused: Sequence[Guess]
    label: Mapping[str, Choice]
    doubts: Sequence[Doubt] = ()
    tried: Mapping[str, Choice] = field(default_factory=dict)
    """The options that a trial with the sample adds."""


def make_draft(sample: SourceSample, answers: Answers) -> Draft:
    """Decides everything that the spec says. Raises: UserError: no column is a feature, or an answer is missing."""
    split = None if sample.data.split_names else _find_split(sample)
    if split and split[0] == SPLIT and SPLIT in sample.of_path:  # the class that a folder names depends on it
        sample.always = {SPLIT: Column(ColumnType.CATEGORY, optional=True)}
    key, guesses = _find_key(sample), _guesses(sample)
    for column, why in ((split, "decides the split"), (key, "the key, which every record holds")):
        if column and not (column[0] in guesses and guesses[column[0]].kind == IMAGE):  # an image's path may be the key
            guesses[column[0]] = left_out(column[0], why, column[1])
    codes = find_codes(sample, guesses)
    label, why_label = _find_label(sample, guesses, codes)
    if label:
        guesses[label.column] = label = with_classes(label, sample, codes)
    elif codes:
        guesses[codes.column] = with_classes(guesses[codes.column], sample, codes)
    names = feature_names(column for column, item in guesses.items() if item.kind)
    image = next((item for item in guesses.values() if item.kind == IMAGE), None)
    if image:
        if ID.fullmatch(image.column) and IMAGE not in names.values():
            names[image.column] = IMAGE
        guesses = {
            column: guess_boxes(item, names[image.column], image, answers, sample.data.known.get(column, {}))
            for column, item in guesses.items()
        }
    features = {names[column]: item for column, item in guesses.items() if item.kind}
    if not features:
        reasons = "; ".join(f"{column}: {item.options['#'][1]}" for column, item in guesses.items())
        is_empty = not any(item.reading.rows for item in guesses.values())
        why = f"has no column that a feature can be made of: {reasons}"
        why = f"holds no row, or no good one{sample.first_reject()}" if is_empty else why
        raise UnknownDataError(f"{sample.data.sources[0]['path']} {why}")
    splits = _column_splits(*split) if split else {"splits": _splits(sample.data, guesses)}
    groups, together = _groups(sample, guesses) if not split else ({}, [])
    rows = {**_key(key), **splits, **groups}
    target = {"label": (names[label.column], why_label)} if label else {"# label": ("FEATURE", why_label)}
    unused = [item for item in guesses.values() if not item.kind]
    doubts = [*sample.data.doubts, *together, *_doubts(sample, guesses, has_image=bool(image))]
    return Draft(sample.data, rows, features, unused, target, doubts)


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
        taken = {*names.values(), *RESERVED, *(f"{other}_{part}" for other in names.values() for part in PARTS)}
        free = (wish for wish in wishes if wish and taken.isdisjoint([wish, *(f"{wish}_{part}" for part in PARTS)]))
        names[column] = next(free)
    return names


def _guesses(sample: SourceSample) -> dict[str, Guess]:
    """A guess of each column, images first; of a column inside another only one of them."""
    guesses: dict[str, Guess] = {}
    for name in sample.names:
        if not name or name.startswith("@"):
            why = "a name that begins with @ is kept for the build's own columns" if name else "a column without a name"
            guesses[name] = left_out(name, why, Reading())
    guesses |= {name: left_out(name, "pandas' index, which is no data", Reading()) for name in index_names(sample)}
    for attempt in (guess_image, _guess_other):
        for name in sample.names:
            is_inside = any(name.startswith(f"{other}.") and item.kind for other, item in guesses.items())
            if name not in guesses and not is_inside and (name not in sample.of_path or name in (IMAGE, LABEL)):
                result = attempt(sample, name)
                if result:
                    guesses[name] = result
    return guesses


def _guess_other(sample: SourceSample, name: str) -> Guess | None:
    if name not in sample.of_path:
        return guess(sample, name)
    classes = sample.read(LABEL, ColumnType.CATEGORY)
    if 2 * classes.missing > classes.rows or not classes.values:
        return None
    if len(classes.distinct) < 2:
        return left_out(LABEL, f"one folder alone, {next(iter(classes.distinct))}", classes)
    if all(map(PART_FOLDER.fullmatch, classes.distinct)):
        return left_out(LABEL, f"folders whose names are no classes: {', '.join(sorted(classes.distinct))}", classes)
    return feature(LABEL, "category", f"the folders: {distinct(classes)}", classes)


def _find_key(sample: SourceSample) -> Named:
    """The column that names a row: one that is called so, and has a value of its own in each sampled row."""
    named = {name: sample.read(name, ColumnType.CATEGORY) for name in sample.names if ID.fullmatch(name)}
    unique = [name for name, values in named.items() if len(values.distinct) == values.rows > 0]
    best = min(unique, key=lambda name: (name.lower() not in SURE_IDS, len(name)), default=None)
    return None if best is None else (best, named[best])


def _key(key: Named) -> dict[str, Choice]:
    if key:
        return {"key": (key[0], f"different in {key[1].of}")}
    return {"# key": ("COLUMN", "by default a path, a name or a digest of the row")}


def _find_label(sample: SourceSample, guesses: Mapping[str, Guess], codes: Codes | None) -> tuple[Guess | None, str]:
    """The feature that a model learns to predict, by its codes or its name, and why.

    A label cannot be optional, so each source must have its column, and hardly any row may lack it.
    """
    if sample.data.known:
        return None, "boxes and what they are of are learned together; name a feature to predict it alone"
    column = codes.column if codes else label_of(guesses)
    if column is None:
        return None, "no column has a label's usual name: choose a feature"
    item, reading = guesses[column], guesses[column].reading
    if reading.missing > (1 - FITS) * reading.rows or not all(column in names for names in sample.names_of):
        return None, f"{column}, which many rows lack, cannot be one: a label is not optional"
    options = dict(item.options)
    if lacking := options.pop("optional", None):
        options["# optional"] = (False, f"{lacking[1]}: rejects, since no label is optional")
    return replace(item, options=options), "what is learned; the other features are inputs"


def _find_split(sample: SourceSample) -> Named:
    """The column that holds the split's name in each row; several splits must be among the sampled rows."""
    for name in sorted(sample.names, key=SPLIT.__ne__):
        names = sample.read(name, ColumnType.TEXT)
        words = {SPLITS.get(value.lower()) for value in names.distinct}
        are_splits = None not in words and "train" in words and len(words) > 1
        if are_splits and names.fit >= FITS and not names.missing:
            return name, names
    return None


def _splits(data: Recognized, guesses: Mapping[str, Guess]) -> Choice:
    """The shares of the splits, of the sources or by the key."""
    if data.split_names:
        return {name: SHARES[name] for name in data.split_names}, "each source is one split"
    most = max((item.reading for item in guesses.values()), key=lambda reading: reading.rows)
    if most.is_all and most.rows < DIVIDED_ROWS:
        return {"train": 100}, f"{count(most.rows, 'row')}: too few to divide"
    return SHARES, "by a hash of the key"


def _groups(sample: SourceSample, guesses: Mapping[str, Guess]) -> tuple[dict[str, Choice], list[Doubt]]:
    """Suggests to hold all rows of one patient, or image, in one split: of the column that makes the fewest groups."""
    some = {name: item for name, item in guesses.items() if item.kind in (IMAGE, "raw") and not item.reading.missing}
    counts = {name: (len(item.reading.distinct), len(item.reading.values)) for name, item in some.items()}
    repeat = [name for name, (each, every) in counts.items() if is_id(name) and FEW_GROUPS <= each <= FITS * every]
    repeat += [name for name, (each, every) in counts.items() if some[name].kind == IMAGE and each < every]
    if sample.data.split_names or not repeat:
        return {}, []
    name = min(repeat, key=counts.__getitem__)
    what = f"rows share a value ({distinct(guesses[name].reading)}), and the key parts them between splits"
    doubt = Doubt(f"column '{name}'", what, f"One split for each: `split_by: {{group: {name}}}`")
    return {"# split_by": ({"group": name}, f"would hold all rows of one {name} in one split")}, [doubt]


def _doubts(sample: SourceSample, guesses: Mapping[str, Guess], *, has_image: bool) -> Iterator[Doubt]:
    """Yields what is in doubt by the columns' names and values."""
    yield from column_doubts(sample.names)
    yield from name_doubts(sample, guesses)
    numbers = {name: item for name, item in guesses.items() if has_image and item.kind in ("number", "numbers")}
    yield from box_doubts({name: item.reading.values for name, item in numbers.items()})
    for name, item in guesses.items():
        if item.kind:
            cells = sample.read(name, ColumnType.TEXT).values or item.reading.distinct
            yield from value_doubts(name, list(map(str, cells)), item.kind)
        images = [len(sample.read(part, ColumnType.IMAGE).values) for part in name.split(";") if ";" in name]
        if sum(images) > len(item.reading.values):
            what = "of a sample's images the first alone is read"
            yield Doubt(f"column '{name}'", what, "Name one a feature, by `column`")


def _column_splits(column: str, names: Reading) -> dict[str, Choice]:
    """The splits that a column names, and how it does; a split that was not seen is not written."""
    values = {name: [value for value in sorted(names.distinct) if SPLITS[value.lower()] == name] for name in SHARES}
    splits = {name: SHARES[name] for name, some in values.items() if some}
    others = "" if names.is_all else "; a row of another split would be a reject: add that split"
    counts = ", ".join(f"{value} {count:,}" for value, count in sorted(names.distinct.items()))
    return {
        "splits": (splits, f"the column decides, not the shares{others}"),
        "split_by": ({"column": column, "values": {name: values[name] for name in splits}}, f"{counts} of {names.of}"),
    }
