"""The classes of a label: all its names, or a file's names for codes such as 1 to 4."""

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.pipeline.init.doubts import CODE, Doubt
from recordmill.pipeline.init.guess import LABEL_KINDS, Choice, Guess, is_label
from recordmill.pipeline.init.recognize import naming_classes
from recordmill.pipeline.init.sample import SourceSample
from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.sources.formats.image_fields import IMAGE, LABEL, path_column
from recordmill.pipeline.sources.formats.parquet import class_labels
from recordmill.pipeline.sources.paths import listed, note
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.sources.typing.blocks import check_column

MOST_CLASSES = 200  # for a person to read
NAMES_BYTES = 1 << 20  # 1 MiB
NUMBERED = re.compile(r"(\d+)[\s,:=]++(.*\S)")  # a line with a code and its name
CODED = re.compile(r"-?[0-9]{1,9}")
SYNSET = re.compile(r"n\d{8}")
INDEX_LEVEL, INDEX_OF_CSV = re.compile(r"__index_level_\d+__"), "Unnamed: 0"


@dataclass(frozen=True)
class Codes:
    """A column of codes, and their names in a file."""

    column: str
    names: Mapping[int, str]
    file: str


def find_codes(sample: SourceSample, guesses: Mapping[str, Guess]) -> Codes | None:
    """Finds a column of codes with names in the schema or a file next to the data: the label, or the only one."""
    columns = dict[str, set[int]]()
    for name, item in guesses.items():
        reading = sample.read(name, ColumnType.CATEGORY) if item.kind == "number" else item.reading
        if item.kind in LABEL_KINDS and reading.values and all(map(CODE.fullmatch, reading.distinct)):
            columns[name] = set(map(int, reading.distinct))
    called = {name: codes for name, codes in columns.items() if is_label(name)}
    wanted, stated = called or columns, class_labels(_schema(sample)) if columns else {}
    for name in wanted:
        if columns[name] <= stated.get(name, {}).keys():
            return Codes(name, stated[name], "the schema")
    for file, names in _named(sample) if columns else ():
        fitting = {
            name: _by_code(codes, names, is_sure=bool(called) or guesses[name].kind == "categories")
            for name, codes in wanted.items()
        }
        found = [Codes(name, by_code, file) for name, by_code in fitting.items() if by_code]
        if len(found) == 1:
            return found[0]
    return None


def _schema(sample: SourceSample) -> pa.Schema:
    if sample.sources[0].format != "parquet":
        return pa.schema([])
    with sample.origin.open(sample.data.files[0].path) as opened:
        return pq.read_schema(opened)


def index_names(sample: SourceSample) -> list[str]:
    """Lists the columns of an unnamed pandas index: whole numbers, in CSV the first column of a file."""
    some = [name for name in sample.names if INDEX_LEVEL.fullmatch(name) or name == sample.names[0] == INDEX_OF_CSV]
    read = {name: sample.read(name, ColumnType.INTEGER) for name in some}
    whole = {name: item for name, item in read.items() if item.fit == 1 and not item.missing}
    again = len(sample.data.files)  # each begins at 0
    return [name for name, n in whole.items() if name != INDEX_OF_CSV or len(n.values) <= len(n.distinct) * again]


def name_doubts(sample: SourceSample, guesses: Mapping[str, Guess]) -> Iterator[Doubt]:
    """Yields a doubt for each feature of codes with unused names in the schema."""
    for name, names in class_labels(_schema(sample)).items():
        item = guesses.get(name)
        if item and item.kind and item.options.get("classes", [None])[0] != names:
            some = listed([f"{code}: {word}" for code, word in names.items()], 3)
            what = f"codes with names in the schema ({some}) are read as `kind: {item.kind}` without them"
            remedy = "Classes: `category`, for lists `categories`, with `classes` for all codes"
            yield Doubt(f"column '{name}'", what, remedy)


def without_unlabelled(sample: SourceSample) -> SourceSample:
    """Leaves out sources without any value of a label in the schema, such as published test splits."""
    for name in class_labels(_schema(sample)) if len(sample.sources) > 1 else ():
        with suppress(SourceError):  # not a column of names
            blocks, _ = sample.take({name: Column(ColumnType.CATEGORY, optional=True)})
            found = {number for number, block in blocks if block.table[name].null_count < block.table.num_rows}
            left = [source["path"] for number, source in enumerate(sample.data.sources) if number not in found]
            if found and left:
                some = [source for source in sample.data.sources if source["path"] not in left]
                notes = [*sample.data.notes, *note(f"left out, without any {name}", left)]
                return SourceSample(sample.origin, replace(sample.data, sources=some, notes=notes))
    return sample


def _named(sample: SourceSample) -> Iterator[tuple[str, dict[int, str] | list[str]]]:
    """Yields the files next to the data that name classes, with the names."""
    for file in naming_classes(sample.origin, sample.data.files):
        name = posixpath.basename(file.path)
        if file.bytes <= NAMES_BYTES:
            with suppress(ValueError, RecursionError):
                yield name, read_names(sample.origin.read(file.path).decode("utf-8-sig"), is_json=name.endswith("json"))


def read_names(text: str, *, is_json: bool) -> dict[int, str] | list[str]:
    r"""Reads class names, by code or in order. Raises: ValueError: anything else.

    >>> read_names("World\nSports\n", is_json=False), read_names('{"Sports": 2}', is_json=True)
    (['World', 'Sports'], {2: 'Sports'})
    """
    content = json.loads(text) if is_json else [line.strip() for line in text.splitlines() if line.strip()]
    if not is_json and all(map(NUMBERED.fullmatch, content)):
        content = dict(re.split(r"[\s,:=]+", line, maxsplit=1) for line in content)
    if isinstance(content, dict):
        pairs = [pair if pair[0].isdecimal() else pair[::-1] for pair in content.items()]
        if len({str(code) for code, _ in pairs if CODED.fullmatch(str(code))}) < len(pairs):
            raise ValueError("no codes, or one twice")
        content = {int(code): name for code, name in pairs}
    names = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError("no names")
    if len(set(names)) < len(names):
        raise ValueError("a name twice")
    return content


def _by_code(codes: set[int], names: dict[int, str] | list[str], *, is_sure: bool) -> dict[int, str] | None:
    """Returns names by code; a list counts from 0 or 1 if only one fits. Unless sure, each name needs its code."""
    if isinstance(names, list):
        starts = [start for start in (0, 1) if start <= min(codes) and max(codes) < start + len(names)]
        names = dict(enumerate(names, starts[0])) if len(starts) == 1 else {}
    fits = codes <= names.keys() and (is_sure or len(codes) == len(names))
    return dict(sorted(names.items())) if fits else None


def with_classes(label: Guess, sample: SourceSample, codes: Codes | None) -> Guess:
    """Returns a label with its classes if all names are certain, else with the reason why not."""
    if codes:
        options = {option: choice for option, choice in label.options.items() if option != "# kind"}
        kind = "categories" if label.kind == "categories" else "category"
        options |= {"kind": (kind, "codes"), "classes": (codes.names, f"named in {codes.file}")}
        return replace(label, options=options)
    if label.kind == "number":
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
    classes: dict[str, Choice] = {"classes": (sorted(names), "all names, in alphabetical order: their ids stay")}
    if not is_known:
        classes = {"# classes": ("NAMES", f"not written: {label.reading.of} may not hold all names")}
    elif shown := _of_synsets(sample, names):
        classes = {"classes": shown}
    elif len(names) > MOST_CLASSES:
        classes = {"# classes": ("NAMES", f"not written: {len(names):,} names, more than {MOST_CLASSES}")}
    return replace(label, options={**label.options, **classes})


def _of_synsets(sample: SourceSample, folders: set[str]) -> Choice | None:
    """Returns the names of ImageNet's folders from a file such as `n01440764 tench, Tinca tinca`; None without one."""
    for file, lines in _named(sample) if all(map(SYNSET.fullmatch, folders)) else ():
        words = (line.split(maxsplit=1) for line in lines if isinstance(line, str))
        names = dict(pair for pair in words if len(pair) == 2 and pair[0] in folders)
        if names.keys() == folders:
            times = Counter(names.values())  # ImageNet has two `crane`
            unique = {key: name if times[name] == 1 else f"{name} ({key})" for key, name in sorted(names.items())}
            return unique, f"the folders' names in {file}"
    return None
