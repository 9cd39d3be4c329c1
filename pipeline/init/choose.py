"""Chooses features and their names, the key, the label and its classes, and the splits among the columns."""

import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.parquet as pq

from recordmill.pipeline.dataset.placement import SPLITS
from recordmill.pipeline.init import guess as guessing
from recordmill.pipeline.init.arrays import guess_pixels
from recordmill.pipeline.init.beside import in_folders
from recordmill.pipeline.init.boxes import Answers, box_doubts, doubts_of_columns, guess_columns, on_image
from recordmill.pipeline.init.doubts import CODE, DAY, Doubt, UnknownDataError, column_doubts, value_doubts
from recordmill.pipeline.init.guess import FITS, Choice, Guess, left_out, without_unread
from recordmill.pipeline.init.images import MASK, are_named, guess_annotated, guess_image
from recordmill.pipeline.init.recognize import Recognized, naming_classes
from recordmill.pipeline.init.sample import Reading, SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources import naming
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats.image_fields import IMAGE, LABEL, SPLIT, path_column
from recordmill.pipeline.sources.formats.parquet import class_labels
from recordmill.pipeline.sources.naming import ID, LABELS, MASK_COLUMN, is_id, is_label, plain_name, split_of
from recordmill.pipeline.sources.paths import listed, note
from recordmill.pipeline.sources.typing.checks import check_column
from recordmill.pipeline.spec.model import RESERVED
from recordmill.transforms.base.columns import Column, ColumnType

PARTS = ("missing", "length", "orientation", "loss_mask", "token_types")  # other tensors, `<feature>_<part>`
PAIRS = {"question": "answer", "premise": "hypothesis", "sentence1": "sentence2", "query": "passage"}
MESSAGE = re.compile(r"\.(role|from)$")  # columns inside messages
SHARES = {"train": 80, "validation": 10, "test": 10}
SOME = 20  # rows that show what is no chance
LONG = 8  # words of a text that several rows may share, such as a premise or a paragraph
MOST_CLASSES, NAMES_BYTES = 200, 1 << 20  # for a person to read; 1 MiB
SYNSET = re.compile(r"n\d{8}")
INDEX_LEVEL, INDEX_OF_CSV = re.compile(r"__index_level_\d+__"), "Unnamed: 0"

Named = tuple[str, Reading] | None  # a column, and its values as names


@dataclass(frozen=True)
class Draft:
    """A spec before it is written."""

    data: Recognized
    rows: Mapping[str, Choice]  # the options for the key and the split
    features: Mapping[str, Guess]
    unused: Sequence[Guess]
    label: Mapping[str, Choice]
    doubts: Sequence[Doubt] = ()
    tried: Mapping[str, Choice] = field(default_factory=dict)  # the options added by a trial with the sample


def make_draft(sample: SourceSample, answers: Answers) -> Draft:
    """Decides the whole spec. Raises: UserError: no column fits a feature, or an answer is missing."""
    split = None if sample.data.split_names else _find_split(sample)
    if split and split[0] == SPLIT and SPLIT in sample.of_path:  # decides which folder names the class
        sample.always = {SPLIT: Column(ColumnType.CATEGORY, optional=True)}
    named = {name: sample.read(name, ColumnType.CATEGORY) for name in sample.names if ID.fullmatch(name)}
    keys = [(name, values) for name, values in named.items() if len(values.distinct) == values.rows > 0]
    key: Named = min(keys, key=lambda each: (each[0].lower() not in ("id", "key", "uuid"), len(each[0])), default=None)
    guesses = _guesses(sample)
    for column, why in ((split, "decides the split"), (key, "the key, which every record holds")):
        if column and not (column[0] in guesses and guesses[column[0]].kind == IMAGE):  # an image's path may be the key
            guesses[column[0]] = left_out(column[0], why, column[1])
    codes = find_codes(sample, guesses)
    label, why_label = _find_label(sample, guesses, codes)
    guesses |= {label.column: label} if label else {}
    for column in {*codes, *([label.column] if label else ())}:
        guesses[column] = with_classes(guesses[column], sample, codes.get(column))
    guesses |= _twins(sample, guesses, label.column) if label else {}
    names = feature_names(column for column, item in guesses.items() if item.kind)
    if has_image := any(item.kind == IMAGE for item in guesses.values()):
        guesses = on_image(sample, guesses, names, answers)
    guesses = {column: _named_mask(sample, item) for column, item in guesses.items()}
    features = {names[column]: item for column, item in guesses.items() if item.kind}
    if not features:
        reasons = "; ".join(f"{column}: {item.options['#'][1]}" for column, item in guesses.items())
        why = f"has no column for a feature: {reasons}"
        if not any(item.reading.rows for item in guesses.values()):
            why = f"holds no good row{sample.first_reject()}"
        raise UnknownDataError(f"{sample.data.sources[0]['path']} {why}")
    no_key: Choice = ("COLUMN", "by default a path, a name or a digest of the row")
    rows = {"key": (key[0], f"different in {key[1].of}")} if key else {"# key": no_key}
    splits, together = _splits(sample, guesses, split)
    masks = [item for item in guesses.values() if item.kind == MASK and item.column != "shapes"]
    target: dict[str, Choice] = {"# label": ("FEATURE", why_label)}
    for item in [label] if label else masks if len(masks) == 1 else ():
        lacking = item.options.get("optional") and "some images lack it: without `optional` they would be rejects"
        why = lacking or "the learned feature; the others are inputs"
        target = {"# label" if lacking else "label": (names[item.column], why)}
    unused = [item for item in guesses.values() if not item.kind]
    doubts = [*sample.data.doubts, *together, *_doubts(sample, guesses, has_image=has_image)]
    others = [each[0] for each in (split, key) if each]
    sources = [without_unread(source, features.values(), others) for source in sample.data.sources]
    return Draft(replace(sample.data, sources=sources), rows | splits, features, unused, target, doubts)


def _twins(sample: SourceSample, guesses: Mapping[str, Guess], label: str) -> dict[str, Guess]:
    """Leaves out the columns that stand one to one for the label, such as its name beside its number."""
    target, found = sample.read(label, ColumnType.CATEGORY).values, dict[str, Guess]()
    for column in [each for each, item in guesses.items() if item.kind in ("category", "number", "raw", "text")]:
        reading = sample.read(column, ColumnType.CATEGORY)
        distinct, pairs = {*reading.values}, {*zip(reading.values, target, strict=False)}
        if column != label and len(reading.values) == len(target) >= max(SOME, 2 * len(distinct)):
            if 1 < len(distinct) == len(pairs) == len({*target}):
                found[column] = left_out(column, f"one value for each of '{label}', which it would tell", reading)
    return found


def valid_name(text: str, default: str) -> str:
    """Returns the nearest valid name in a spec: letters, digits and underscores, a letter first.

    >>> valid_name("2024 müll-data!", "dataset")
    'mull_data'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_").lstrip("0123456789_")[:100] or default


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
    """Guesses each column by the first detector that knows it, images first; skips columns inside a guessed one."""
    why = "names that begin with @ are reserved"
    odd = (name for name in sample.names if not name or name.startswith("@"))
    guesses = {name: left_out(name, why if name else "a column without a name") for name in odd}
    for name in sample.names:  # an unnamed index: whole numbers, in CSV the first column of a file
        if INDEX_LEVEL.fullmatch(name) or name == sample.names[0] == INDEX_OF_CSV:
            numbers = sample.read(name, ColumnType.INTEGER)
            most = len(numbers.distinct) * len(sample.data.files)  # each begins at 0
            if numbers.fit == 1 and not numbers.missing and (name != INDEX_OF_CSV or len(numbers.values) <= most):
                guesses[name] = left_out(name, "pandas' index, not data")
    messages = dict.fromkeys(name.rpartition(".")[0] for name in sample.names if MESSAGE.search(name))
    guesses |= {name: chat for name in (*messages, guessing.CHAT) if (chat := guessing.chat(sample, name))}
    for detectors in ((guess_image,), (guess_pixels,), (guess_annotated, _folder_class, guessing.guess)):
        pictures = [item for item in guesses.values() if item.kind == IMAGE]
        if pictures and all(MASK_COLUMN.fullmatch(item.column) for item in pictures):
            why = "masks without a column of their images"
            guesses |= {item.column: left_out(item.column, why, item.reading) for item in pictures}
        elif pictures:
            guesses |= guess_columns(sample)
        inputs = {name for item in guesses.values() for name in item.inputs}
        for name in sample.names:
            read = {*inputs, *(other for other, item in guesses.items() if item.kind)}
            is_inside = name in inputs or any(name.startswith(f"{other}.") for other in read)
            if name not in guesses and not is_inside and (name not in sample.of_path or name in (IMAGE, LABEL)):
                found = next(filter(None, (detect(sample, name) for detect in detectors)), None)
                guesses |= {name: found} if found else {}
    for first, second in PAIRS.items():
        if all(name in guesses and guesses[name].kind == "text" for name in (first, second)):
            pair = ("pair", f"{first} and {second} as one, by a model's tokenizer")
            guesses[first] = guesses[first].with_options(**{"# kind": pair})
    return guesses


def _folder_class(sample: SourceSample, name: str) -> Guess | None:
    """Guesses the classes of images by their folders, which may be masks', days' or parts' instead."""
    if name not in sample.of_path:
        return None
    classes = sample.read(LABEL, ColumnType.CATEGORY)
    if 2 * classes.missing > classes.rows or not classes.values:
        return None
    if len(classes.distinct) < 2:
        return left_out(LABEL, f"only one folder, {next(iter(classes.distinct))}", classes)
    if in_folders(sample.data.sources[0].get("beside", {})):
        why = f"folders of masked images, {guessing.distinct(classes)}: as classes, `label: {{kind: category}}`"
        return left_out(LABEL, why, classes)
    are_days = all(DAY.match(f"{name}/") for name in classes.distinct)
    if are_days or all(naming.PART_FOLDER.fullmatch(name) or split_of(name) for name in classes.distinct):
        what = "days" if are_days else "parts"
        return left_out(LABEL, f"folders of {what}, not classes: {listed(sorted(classes.distinct))}", classes)
    return guessing.feature(LABEL, "category", f"the folders: {guessing.distinct(classes)}", classes)


def _named_mask(sample: SourceSample, item: Guess) -> Guess:
    """Names the values, or colours, of a mask's pixels by a file beside the data that has them all."""
    chosen = {option: item.options.get(option, ({}, ""))[0] for option in ("colors", "classes", "# classes")}
    colors = {*map(tuple, chosen["colors"].values())}
    codes = {code for each in (chosen["classes"], chosen["# classes"]) if isinstance(each, dict) for code in each}
    kept = {option: choice for option, choice in item.options.items() if option != "# classes"}
    for file, names in _named(sample) if item.kind == MASK else ():
        why = f"as {file} names them"
        if colors and isinstance(names, dict) and colors <= names.keys():
            shown = {name: list(color) for color, name in names.items()}
            return replace(item, options={**kept, "classes": (list(shown), why), "colors": (shown, "")})
        if codes and (found := naming.by_code(codes, names, is_sure=True)):
            return replace(item, options={**kept, "classes": (found, why)})
    return item


def _find_label(sample: SourceSample, guesses: Mapping[str, Guess], codes: Collection[str]) -> tuple[Guess | None, str]:
    """Finds the feature to predict, by its codes or name, and why; each source and most rows must have it."""
    if sample.data.known or any("columns" in item.options and item.kind != "chat" for item in guesses.values()):
        return None, "boxes and their classes are learned together; name a feature to predict only that"
    own = [name for name in codes if guesses[name].kind in ("category", "number") or plain_name(name) == name]
    column = next(filter(is_label, own), None)
    if column is None:  # the surest name; a list only at the top level
        known = dict[str, str]()
        for name, item in guesses.items():
            if item.kind in guessing.LABEL_KINDS and (plain_name(name) == name or item.kind in ("category", "number")):
                known.setdefault(plain_name(name).lower(), name)
        column = next((known[label] for label in LABELS if label in known), next(iter(own), None))
    if column is None:
        return None, "no column has a label's usual name: choose a feature"
    item, reading = guesses[column], guesses[column].reading
    if reading.missing > (1 - FITS) * reading.rows or not all(column in names for names in sample.names_of):
        return None, f"many rows lack {column}: a label is not optional"
    options = dict(item.options)
    if lacking := options.pop("optional", None):
        options["# optional"] = (False, f"{lacking[1]}: rejects, since a label is not optional")
    return replace(item, options=options), ""


def _find_split(sample: SourceSample) -> Named:
    """Finds a column with the split's name in each row; the sample must have several splits."""
    for name in sorted(sample.names, key=SPLIT.__ne__):
        names = sample.read(name, ColumnType.TEXT)
        words = {SPLITS.get(value.lower()) for value in names.distinct}
        if None not in words and naming.are_divided(words) and names.fit >= FITS and not names.missing:
            return name, names
    return None


def _splits(sample: SourceSample, guesses: Mapping[str, Guess], split: Named) -> tuple[dict[str, Choice], list[Doubt]]:
    """Returns the splits by a column, else their shares, by source or by key, and what should stay together."""
    if split:
        column, names = split
        values = {name: [value for value in sorted(names.distinct) if SPLITS[value.lower()] == name] for name in SHARES}
        shares = {name: SHARES[name] for name, some in values.items() if some}  # without splits missing in the sample
        others = "" if names.is_all else "; a row of another split would be a reject: add that split"
        counts = ", ".join(f"{value} {count:,}" for value, count in sorted(names.distinct.items()))
        split_by = {"column": column, "values": {name: values[name] for name in shares}}
        why = f"the column decides, not the shares{others}"
        return {"splits": (shares, why), "split_by": (split_by, f"{counts} of {names.of}")}, []
    if sample.data.split_names:
        shares = {name: SHARES[name] for name in sample.data.split_names}
        return {"splits": (shares, "each source is one split")}, []
    most = max((item.reading for item in guesses.values()), key=lambda reading: reading.rows)
    found: dict[str, Choice] = {"splits": (SHARES, "by a hash of the key")}
    if most.is_all and most.rows < 100:  # a split of 10 % may be empty
        found["splits"] = {"train": 100}, f"{count(most.rows, 'row')}: too few to divide"
    kept = {path.rpartition(".")[2] for path in sample.data.sources[0].get("keep", ())}
    some = {name: item for name, item in guesses.items() if item.reading.values and not item.reading.missing}
    sizes = {name: (len(item.reading.distinct), len(item.reading.values)) for name, item in some.items()}
    # With fewer than 10 groups, such as hospitals, shares can hardly be met.
    alike = [name for name, (each, every) in sizes.items() if 10 <= each <= FITS * every]
    repeat = [name for name in alike if name in kept or (some[name].kind == "raw" and is_id(name))]
    repeat += [name for name, (each, every) in sizes.items() if some[name].kind == IMAGE and each < every]
    texts = {name: some[name].reading for name in alike if some[name].kind == "text" and len(some) > 1}
    words = {name: sum(len(text.split()) for text in reading.values) for name, reading in texts.items()}
    repeat = repeat or [name for name in texts if words[name] > LONG * sizes[name][1]]
    if not repeat:
        return found, []
    name = min(repeat, key=sizes.__getitem__)
    what = f"rows share a value ({guessing.distinct(guesses[name].reading)}), and the key splits them up"
    doubt = Doubt(f"column '{name}'", what, f"One split for each: `split_by: {{group: {name}}}`")
    return found | {"# split_by": ({"group": name}, f"keeps all rows of one {name} in one split")}, [doubt]


def _doubts(sample: SourceSample, guesses: Mapping[str, Guess], *, has_image: bool) -> Iterator[Doubt]:
    yield from column_doubts(sample.names)
    yield from doubts_of_columns(guesses)
    for name, names in _stated_names(sample).items():
        item = guesses.get(name)
        if item and item.kind and item.options.get("classes", [None])[0] != names:
            some = listed([f"{code}: {word}" for code, word in names.items()], 3)
            what = f"codes with names in the schema ({some}) are read as `kind: {item.kind}` without them"
            remedy = "Classes: `category`, for lists `categories`, with `classes` for all codes"
            yield Doubt(f"column '{name}'", what, remedy)
    numbers = {name: item for name, item in guesses.items() if has_image and item.kind in ("number", "numbers")}
    yield from box_doubts({name: item.reading.values for name, item in numbers.items()})
    for name, item in guesses.items():
        if item.kind:
            cells = sample.read(name, ColumnType.TEXT).values or item.reading.distinct
            yield from value_doubts(name, [*map(str, cells), *[""] * len(item.optional)], item.kind)
        images = [len(sample.read(part, ColumnType.IMAGE).values) for part in name.split(";") if ";" in name]
        if sum(images) > len(item.reading.values):
            what = "only the first of a sample's images is read"
            yield Doubt(f"column '{name}'", what, "Name one a feature, by `column`")


def find_codes(sample: SourceSample, guesses: Mapping[str, Guess]) -> dict[str, Choice]:
    """Finds the names of columns of codes in the schema, else those of one in a file next to the data."""
    columns = dict[str, set[int]]()
    for name, item in guesses.items():
        is_read, reading = item.kind in ("number", "numbers"), item.reading
        if is_read:
            reading = sample.read(name, ColumnType.CATEGORY, many=item.kind == "numbers")
        are_codes = reading.distinct and all(map(CODE.fullmatch, map(str, reading.distinct)))
        if are_codes and (is_read or item.kind in guessing.LABEL_KINDS):
            columns[name] = set(map(int, reading.distinct))
    stated = _stated_names(sample) if columns else {}
    sure = [name for name, codes in columns.items() if codes <= stated.get(name, {}).keys()]
    if sure or not columns:
        return {name: (stated[name], "named in the schema") for name in sure}
    columns = {name: codes for name, codes in columns.items() if guesses[name].kind != "numbers"}
    called = {name: codes for name, codes in columns.items() if is_label(name)}
    for file, names in _named(sample) if columns else ():
        found = dict[str, Choice]()
        for name, codes in (called or columns).items():
            is_sure = bool(called) or guesses[name].kind == "categories"
            fitting = naming.by_code(codes, names, is_sure=is_sure)
            found |= {name: (fitting, f"named in {file}")} if fitting else {}
        if len(found) == 1:
            return found
    return {}


def _stated_names(sample: SourceSample) -> dict[str, dict[int, str]]:
    if sample.sources[0].format != "parquet":
        return {}
    with sample.origin.open(sample.data.files[0].path) as opened:
        return class_labels(pq.read_schema(opened))


def without_unlabelled(sample: SourceSample) -> SourceSample:
    """Leaves out sources without any value of a label, such as published test splits, by schema or beside images."""
    several = sample.names if len(sample.sources) > 1 else []
    has_images = sample.data.image_column or any(are_named(sample.read(name, ColumnType.TEXT)) for name in several)
    labels = [*_stated_names(sample), *(filter(is_label, sample.names_of[0]) if has_images else ())]
    for name in labels if several else ():
        with suppress(SourceError):  # not a column of names
            blocks, _ = sample.take({name: Column(ColumnType.CATEGORY, optional=True)})
            found = {number for number, block in blocks if block.table[name].null_count < block.table.num_rows}
            left = [source["path"] for number, source in enumerate(sample.data.sources) if number not in found]
            if found and left:
                some = [source for source in sample.data.sources if source["path"] not in left]
                if len(some) == 1:  # to be divided
                    some = [{option: value for option, value in some[0].items() if option != "split"}]
                notes = [*sample.data.notes, *note(f"left out, without any {name}", left)]
                return SourceSample(sample.origin, replace(sample.data, sources=some, notes=notes))
    return sample


def _named(sample: SourceSample) -> Iterator[tuple[str, dict[Any, str] | list[str]]]:
    """Yields the files next to the data that name classes, with the names, by code, colour or in order."""
    for file in naming_classes(sample.origin, sample.data.files):
        name = posixpath.basename(file.path)
        if file.bytes <= NAMES_BYTES:
            with suppress(ValueError, RecursionError):
                text = sample.origin.read(file.path).decode("utf-8-sig")
                by_name = {"is_json": name.endswith("json"), "is_csv": name.endswith("csv")}
                yield name, naming.read_colors(text) or naming.read_names(text, **by_name)


def with_classes(label: Guess, sample: SourceSample, codes: Choice | None) -> Guess:
    """Returns a label with its classes if all names are certain, else with the reason why not."""
    if codes:
        options = {option: choice for option, choice in label.options.items() if option not in ("# kind", "normalize")}
        kind = "categories" if label.kind in ("categories", "numbers") else "category"
        return replace(label, options=options | {"kind": (kind, "codes"), "classes": codes})
    if label.kind in ("number", "numbers"):
        return label
    reading = label.reading
    if not reading.is_all:
        separator = label.options.get("separator", (",", ""))[0]
        many = label.kind == "categories"
        reading = sample.whole().read(label.column, ColumnType.CATEGORY, many=many, separator=separator)
    names, is_known = set(reading.distinct), reading.is_all
    if sample.data.folders and label.column in sample.of_path:
        images = [posixpath.join(folder, IMAGE) for folder in sample.data.folders]
        column = Column(ColumnType.CATEGORY)
        labels = path_column(LABEL, column, images, {}, reads_split=bool(sample.always))
        names, is_known = {*check_column(LABEL, column, labels, {}).drop_null().to_pylist()}, True
    ordered = sorted(names, key=int if all(map(CODE.fullmatch, names)) else str)
    classes: dict[str, Choice] = {"classes": (ordered, "all names, in their order: their ids stay")}
    if not is_known:
        classes = {"# classes": ("NAMES", f"not written: {label.reading.of} may not hold all names")}
    elif len(names) > MOST_CLASSES:
        classes = {"# classes": ("NAMES", f"not written: {len(names):,} names, more than {MOST_CLASSES}")}
    for file, lines in _named(sample) if is_known and all(map(SYNSET.fullmatch, names)) else ():
        words = (line.split(maxsplit=1) for line in lines if isinstance(line, str))
        known = dict(pair for pair in words if len(pair) == 2 and pair[0] in names)
        if known.keys() == names:
            times = Counter(known.values())  # ImageNet has two `crane`
            unique = {key: name if times[name] == 1 else f"{name} ({key})" for key, name in sorted(known.items())}
            classes = {"classes": (unique, f"the folders' names in {file}")}
            break
    return label.with_options(**classes)
