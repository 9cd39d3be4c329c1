"""Recognizes lines that belong together: joined text files, sentences of CoNLL, and rows inside a JSON document.

>>> find_document(b'{"data": [{"title": "a", "qas": [{"id": 1}, {"id": 2}]}], "version": 1}')
Document(rows='data[].qas[]', keep=('data[].title',), others=())
"""

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.dataset.placement import SPLITS
from recordmill.pipeline.init.doubts import Doubt, UnknownDataError, Written
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.encoded import uncompressed_name
from recordmill.pipeline.sources.files import FileInfo
from recordmill.pipeline.sources.formats.conll import DOCUMENT_START, NO_WORD, cells_of, is_comment
from recordmill.pipeline.sources.formats.json import lines_hint
from recordmill.pipeline.sources.formats.json_document import closed
from recordmill.pipeline.sources.naming import ROW_IDS
from recordmill.pipeline.sources.options import CONLLU
from recordmill.pipeline.sources.paths import listed

HEAD_BYTES = 1 << 20  # 1 MiB, about a sample of rows
SENTENCES = ("conll", "conllu")
ORIENTS = {  # beginnings of pandas' `to_json` files, by `orient`; lists are also read as columns
    "split": re.compile(rb'\{\s*+"columns"\s*+:\s*+\['),
    "table": re.compile(rb'\{\s*+"schema"\s*+:\s*+\{\s*+"fields"'),
    "index": re.compile(rb'\{\s*+"0"\s*+:\s*+\{'),
    "columns": re.compile(rb'\{\s*+"(?:[^"\\]|\\.)*+"\s*+:\s*+(?:\{\s*+"0"\s*+:|\[\s*+[^\s{])'),
}
PART = re.compile(r"[._-]+")  # between the parts of a file's name
COLUMN = re.compile(r"[A-Za-z]{2,}")  # the part that names a joined file's column: `en`, `labels`
CLASSES = {"pos", "neg", "positive", "negative", "spam", "ham", "true", "fake", "real", "good", "bad", "yes", "no"}
"""Parts of names of files with a class each: Cornell's `rt-polarity.pos` and `.neg` have equally many lines."""
MOST_FILES = 8  # that a row is joined of
TAG = re.compile(rb"O|[BIESLUM]-\S+")  # of a named entity or a chunk
TAGGED = {2: ("word", "tag"), 3: ("word", "pos", "tag"), 4: ("word", "pos", "chunk", "ner")}
"""Usual names of columns that end in a tag, by their number."""
NO_KEY = re.compile(r"[.\[\]]")


@dataclass(frozen=True)
class Joined:
    """Files with equally many lines, by column."""

    folder: str
    files: Mapping[str, FileInfo]
    lines: int

    @property
    def columns(self) -> dict[str, str]:
        """The files' names in the folder."""
        return {name: posixpath.basename(file.path) for name, file in self.files.items()}


def join_files(some: Sequence[FileInfo], count_lines: Callable[[str], int]) -> tuple[list[Joined], list[str]]:
    """Finds files whose names differ in one part, with the usual columns and equal lines; lists the others."""
    groups = max((_by_column(some, at) for at in (-1, 0)), key=lambda groups: sum(map(len, groups)))
    usual, joined, unequal = Counter(map(frozenset, groups)).most_common(1), list[Joined](), list[str]()
    for group in groups:
        if group.keys() != usual[0][0]:
            continue
        lines = {name: count_lines(file.path) for name, file in group.items()}
        paths = [file.path for file in group.values()]
        if len({*lines.values()}) > 1:
            said = (f"{posixpath.basename(group[name].path)} has {count(n, 'line')}" for name, n in lines.items())
            unequal.append(f"not joined line by line: {', '.join(said)}")
        elif min(lines.values()) > 1:
            joined.append(Joined(posixpath.dirname(paths[0]), group, min(lines.values())))
    return joined, unequal


def _by_column(some: Sequence[FileInfo], at: int) -> list[dict[str, FileInfo]]:
    """Groups files by the other parts of their names, if the first or last part names columns."""
    groups = dict[tuple[str, ...], dict[str, FileInfo]]()
    for file in some:
        folder, name = posixpath.split(uncompressed_name(file.path))
        parts = PART.split(re.sub(r"\.(txt|text)$", "", name, flags=re.IGNORECASE))
        column = parts.pop(at)
        if COLUMN.fullmatch(column) and column.lower() not in {*SPLITS, *CLASSES}:
            groups.setdefault((folder, *parts), {}).setdefault(column, file)
    return [dict(sorted(group.items())) for group in groups.values() if 1 < len(group) <= MOST_FILES]


def find_sentences(head: bytes, form: str, *, is_cut: bool) -> tuple[str, Sequence[str]] | None:
    """Finds the format and the columns of sentences by a file's first bytes; None for other text."""
    every = head.split(b"\n")[: -1 if is_cut else None]
    texts = [b"" if cells_of(line)[:1] == [DOCUMENT_START] else line.strip(b"\r\n ") for line in every]
    widths = Counter(len(cells_of(line)) for line in texts if line and not line.startswith(b"#"))
    usual = widths.most_common(1)[0][0] if widths else 0
    rows = [cells_of(line) for line in texts if line and not is_comment(line, usual)]
    sentences = sum(bool(line) and not before for before, line in zip([b"", *texts], texts, strict=False))
    (width, most), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    last = [cells[-1] for cells in rows if len(cells) == width]
    repeats = 2 * len({*last}) <= len(last) and 1 < sentences and 2 * sentences <= len(rows)
    is_sure = form in SENTENCES or (most == len(rows) and repeats and width <= 20)
    if not is_sure or width < 2 or 10 * most < 9 * len(rows):
        return None
    is_numbered = all(cells[0].isdigit() or NO_WORD.fullmatch(cells[0]) for cells in rows)
    usual_names = TAGGED.get(width - is_numbered) if all(map(TAG.fullmatch, last)) else None
    names = [*("id",) * is_numbered, *(usual_names or ("word",))]
    names += [f"column_{number}" for number in range(len(names) + 1, width + 1)]
    is_whole = width == len(CONLLU) and len(rows) < sum(map(bool, texts))
    has_ranges = names[0] == "id" and any(NO_WORD.fullmatch(cells[0]) for cells in rows)
    is_conllu = form == "conllu" or is_whole or has_ranges
    return "conllu" if is_conllu else "conll", () if is_conllu and width == len(CONLLU) else names


@dataclass(frozen=True)
class Document:
    """The list of rows in a JSON document."""

    rows: str
    keep: Sequence[str] = ()  # single values of the objects around a row
    others: Sequence[str] = ()  # other lists of objects, neither around these rows nor inside them


def find_document(head: bytes) -> Document | None:
    """Finds a list of objects in a JSON document by its first bytes; None for lines of JSON, and without a list.

    Takes the outermost list with the most objects, or one inside it that has ids, where the outer one has none.
    """
    text, is_one = closed(head.decode("utf-8", "surrogateescape"))
    try:
        value = json.loads(text) if is_one and text else None
    except (ValueError, RecursionError):
        return None
    lists = dict[str, list[dict[str, Any]]]()
    _gather(value, "", lists)
    outermost = [path for path in lists if not any(path != other and path.startswith(other) for other in lists)]
    if not outermost:
        return None
    outer = max(outermost, key=lambda path: len(lists[path]))
    inside = [path for path in sorted(lists, key=len) if path.startswith(outer)]
    have_ids = (path for path in inside if not any(ROW_IDS.isdisjoint(map(str.lower, each)) for each in lists[path]))
    rows = next(have_ids, outer)
    around = [path for path in inside if path != rows and rows.startswith(f"{path}.")]
    kept = dict[str, str]()
    for path in around:  # the keys of single values
        keys = dict.fromkeys(key for each in lists[path] for key in each if key and not NO_KEY.search(key))
        inner = {key for each in lists[path] for key, value in each.items() if isinstance(value, dict | list)}
        kept |= {key: f"{path}.{key}" for key in keys if key not in inner}
    own = {key for row in lists[rows] for key in row}
    keep = tuple(path for key, path in kept.items() if key not in own)
    return Document(rows, keep, tuple(path for path in outermost if path != outer))


def _gather(value: Any, path: str, lists: dict[str, list[dict[str, Any]]]) -> None:
    """Adds the objects of each list inside a value, by path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key and not NO_KEY.search(key):
                _gather(inner, f"{path}.{key}" if path else key, lists)
    elif isinstance(value, list):
        objects = [each for each in value if isinstance(each, dict)]
        if objects:
            lists.setdefault(f"{path}[]", []).extend(objects)
        for each in value:
            _gather(each, f"{path}[]", lists)


def rows_inside(form: str, path: str, head: bytes, *, is_cut: bool) -> Written:
    """Finds rows inside a document, or of several lines. Raises: UnknownDataError: named as sentences, without one."""
    if form == "json" and not ORIENTS["table"].match(head.strip()) and (found := find_document(head)):
        what, others = f"the rows are the objects of `{found.rows}`", listed([f"`{each}`" for each in found.others], 3)
        doubt = Doubt(posixpath.basename(path), what, f"Other lists of objects, for `rows`: {others}")
        options = {"format": "json", "rows": found.rows} | ({"keep": [*found.keep]} if found.keep else {})
        return options, {"keep": "from the objects around a row"}, [doubt] if found.others else []
    sentences = find_sentences(head, form, is_cut=is_cut) if form in ("text", *SENTENCES) else None
    if form in SENTENCES and not sentences:
        what = f"named as sentences of {form}, but its lines have different numbers of cells"
        raise UnknownDataError(f"{path} is {what}: rename it to .txt to read it as text")
    if not sentences:
        return {}, {}, []
    columns = {"columns": [*sentences[1]]} if sentences[1] else {}
    return {"format": sentences[0], **columns}, {"columns": "the cells of a line; names by their number"}, []


def files_of_rows(folder: str, chosen: Sequence[FileInfo], heads: Sequence[bytes]) -> Sequence[FileInfo]:
    """Drops files beside JSON files of rows, by first bytes. Raises: UnknownDataError: objects without a common key."""
    keys, documents = list(map(_keys, heads)), [found and found.rows for found in map(find_document, heads)]
    if any(documents) and all(found or each is not None for found, each in zip(documents, keys, strict=True)):
        usual = Counter(filter(None, documents)).most_common(1)[0][0]
        return [file for file, found in zip(chosen, documents, strict=True) if found == usual]
    objects = [each for each in keys if each is not None]
    if len(objects) == len(chosen) > 1 and not set.intersection(*objects):
        said = listed(sorted(file.path[len(folder) + 1 :] for file in chosen), 3)
        raise UnknownDataError(f"{folder} holds JSON files of one object each without common keys, so no rows: {said}")
    return [file for file, each in zip(chosen, keys, strict=True) if each is None] or chosen


def _keys(head: bytes) -> set[str] | None:
    """Returns the keys of a file with one JSON object, by its first bytes; None for others, empty if truncated."""
    text = head.decode("utf-8", "replace").strip()
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return set() if len(head) >= HEAD_BYTES and text.startswith("{") else None
    return set(value) if isinstance(value, dict) and end == len(text) else None


def one_row(head: bytes, path: str) -> str:
    """Returns that a file is one object, and how to convert it to lines; '' for other files."""
    if _keys(head) is None:
        return ""
    hint = lines_hint([head.strip()], path)
    orient = next((name for name, start in ORIENTS.items() if start.match(head.strip())), None)
    with suppress(ValueError, AttributeError, RecursionError):
        first, *others = json.loads(head).values()
        if isinstance(first, dict) and len(first) > 1 and all(other.keys() == first.keys() for other in others):
            orient = "columns" if len(others) < len(first) else "index"  # assuming fewer columns than rows
    if orient:
        read = f"pandas.read_json({path!r}, orient={orient!r}, dtype=False, convert_dates=False)"
        lines = f"{posixpath.splitext(path)[0]}-lines.jsonl"
        hint = f". To convert the table to lines: {read}.to_json({lines!r}, orient='records', lines=True)"
    return f"{path} is one JSON object, which would be one row{hint}"
