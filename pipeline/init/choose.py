"""Chooses features and their names, the key, the label, and the splits among the columns."""

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
PARTS = ("missing", "length", "orientation")  # suffixes of features' other tensors, `<feature>_<part>`
SURE_IDS = ("id", "key", "uuid")
SHARES = {"train": 80, "validation": 10, "test": 10}
DIVIDED_ROWS = 100  # with fewer, a split of 10 % may be empty
FEW_GROUPS = 10  # with fewer, such as hospitals, shares can hardly be met

Named = tuple[str, Reading] | None
"""A column, and its values as names."""


@dataclass(frozen=True)
class Draft:
    """A spec before it is written."""

    data: Recognized
    rows: Mapping[str, Choice]
    """The options for the key and the split."""
    features: Mapping[str, Guess]
    unused: Sequence[Guess]
    label: Mapping[str, Choice]
    doubts: Sequence[Doubt] = ()
    tried: Mapping[str, Choice] = field(default_factory=dict)
    """The options added by a trial with the sample."""


def make_draft(sample: SourceSample, answers: Answers) -> Draft:
    """Decides the whole spec. Raises: UserError: no column fits a feature, or an answer is missing."""
    split = None if sample.data.split_names else _find_split(sample)
    if split and split[0] == SPLIT and SPLIT in sample.of_path:  # decides which folder names the class
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
        why = f"has no column for a feature: {reasons}"
        why = f"holds no good row{sample.first_reject()}" if is_empty else why
        raise UnknownDataError(f"{sample.data.sources[0]['path']} {why}")
    splits = _column_splits(*split) if split else {"splits": _splits(sample.data, guesses)}
    groups, together = _groups(sample, guesses) if not split else ({}, [])
    rows = {**_key(key), **splits, **groups}
    target = {"label": (names[label.column], why_label)} if label else {"# label": ("FEATURE", why_label)}
    unused = [item for item in guesses.values() if not item.kind]
    doubts = [*sample.data.doubts, *together, *_doubts(sample, guesses, has_image=bool(image))]
    return Draft(sample.data, rows, features, unused, target, doubts)


def valid_name(text: str, default: str) -> str:
    """Returns the nearest valid name in a spec: letters, digits and underscores, a letter first.

    >>> valid_name("2024 müll-data!", "dataset")
    'mull_data'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_").lstrip("0123456789_")
    return name[:LONGEST] or default


def feature_names(columns: Iterable[str]) -> dict[str, str]:
    """Names the feature of each column: by the last part of its name, or as near as possible."""
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
    """Guesses each column, images first; skips columns inside a guessed one."""
    guesses: dict[str, Guess] = {}
    for name in sample.names:
        if not name or name.startswith("@"):
            why = "names that begin with @ are reserved" if name else "a column without a name"
            guesses[name] = left_out(name, why, Reading())
    guesses |= {name: left_out(name, "pandas' index, not data", Reading()) for name in index_names(sample)}
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
        return left_out(LABEL, f"only one folder, {next(iter(classes.distinct))}", classes)
    if all(map(PART_FOLDER.fullmatch, classes.distinct)):
        return left_out(LABEL, f"folders named as parts, not classes: {', '.join(sorted(classes.distinct))}", classes)
    return feature(LABEL, "category", f"the folders: {distinct(classes)}", classes)


def _find_key(sample: SourceSample) -> Named:
    """Finds the key: a column with a key's name and different values in all sampled rows."""
    named = {name: sample.read(name, ColumnType.CATEGORY) for name in sample.names if ID.fullmatch(name)}
    unique = [name for name, values in named.items() if len(values.distinct) == values.rows > 0]
    best = min(unique, key=lambda name: (name.lower() not in SURE_IDS, len(name)), default=None)
    return None if best is None else (best, named[best])


def _key(key: Named) -> dict[str, Choice]:
    if key:
        return {"key": (key[0], f"different in {key[1].of}")}
    return {"# key": ("COLUMN", "by default a path, a name or a digest of the row")}


def _find_label(sample: SourceSample, guesses: Mapping[str, Guess], codes: Codes | None) -> tuple[Guess | None, str]:
    """Finds the feature to predict, by its codes or name, and the reason; sources and rows must hardly lack it."""
    if sample.data.known:
        return None, "boxes and their classes are learned together; name a feature to predict only that"
    column = codes.column if codes else label_of(guesses)
    if column is None:
        return None, "no column has a label's usual name: choose a feature"
    item, reading = guesses[column], guesses[column].reading
    if reading.missing > (1 - FITS) * reading.rows or not all(column in names for names in sample.names_of):
        return None, f"many rows lack {column}: a label is not optional"
    options = dict(item.options)
    if lacking := options.pop("optional", None):
        options["# optional"] = (False, f"{lacking[1]}: rejects, since a label is not optional")
    return replace(item, options=options), "the learned feature; the others are inputs"


def _find_split(sample: SourceSample) -> Named:
    """Finds a column with the split's name in each row; the sample must have several splits."""
    for name in sorted(sample.names, key=SPLIT.__ne__):
        names = sample.read(name, ColumnType.TEXT)
        words = {SPLITS.get(value.lower()) for value in names.distinct}
        are_splits = None not in words and "train" in words and len(words) > 1
        if are_splits and names.fit >= FITS and not names.missing:
            return name, names
    return None


def _splits(data: Recognized, guesses: Mapping[str, Guess]) -> Choice:
    """Returns the shares of the splits, by source or by key."""
    if data.split_names:
        return {name: SHARES[name] for name in data.split_names}, "each source is one split"
    most = max((item.reading for item in guesses.values()), key=lambda reading: reading.rows)
    if most.is_all and most.rows < DIVIDED_ROWS:
        return {"train": 100}, f"{count(most.rows, 'row')}: too few to divide"
    return SHARES, "by a hash of the key"


def _groups(sample: SourceSample, guesses: Mapping[str, Guess]) -> tuple[dict[str, Choice], list[Doubt]]:
    """Suggests keeping all rows of one patient, or image, in one split, by the column with the fewest groups."""
    some = {name: item for name, item in guesses.items() if item.kind in (IMAGE, "raw") and not item.reading.missing}
    counts = {name: (len(item.reading.distinct), len(item.reading.values)) for name, item in some.items()}
    repeat = [name for name, (each, every) in counts.items() if is_id(name) and FEW_GROUPS <= each <= FITS * every]
    repeat += [name for name, (each, every) in counts.items() if some[name].kind == IMAGE and each < every]
    if sample.data.split_names or not repeat:
        return {}, []
    name = min(repeat, key=counts.__getitem__)
    what = f"rows share a value ({distinct(guesses[name].reading)}), and the key splits them up"
    doubt = Doubt(f"column '{name}'", what, f"One split for each: `split_by: {{group: {name}}}`")
    return {"# split_by": ({"group": name}, f"keeps all rows of one {name} in one split")}, [doubt]


def _doubts(sample: SourceSample, guesses: Mapping[str, Guess], *, has_image: bool) -> Iterator[Doubt]:
    """Yields doubts about columns' names and values."""
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
            what = "only the first of a sample's images is read"
            yield Doubt(f"column '{name}'", what, "Name one a feature, by `column`")


def _column_splits(column: str, names: Reading) -> dict[str, Choice]:
    """Returns the splits named by a column; a split missing in the sample is not written."""
    values = {name: [value for value in sorted(names.distinct) if SPLITS[value.lower()] == name] for name in SHARES}
    splits = {name: SHARES[name] for name, some in values.items() if some}
    others = "" if names.is_all else "; a row of another split would be a reject: add that split"
    counts = ", ".join(f"{value} {count:,}" for value, count in sorted(names.distinct.items()))
    return {
        "splits": (splits, f"the column decides, not the shares{others}"),
        "split_by": ({"column": column, "values": {name: values[name] for name in splits}}, f"{counts} of {names.of}"),
    }
