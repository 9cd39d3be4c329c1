"""Lists the data at a path, once, and finds the sources that read it, with their options and the reasons."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.init.formats import (
    UnknownDataError,
    are_json_lines,
    cell_options,
    check_json_lines,
    encoding_note,
    format_by_name,
    format_of,
    read_head,
)
from recordmill.pipeline.sources.base import FileInfo, Files
from recordmill.pipeline.sources.compression import codec
from recordmill.pipeline.sources.globs import escape, glob_pattern, is_glob
from recordmill.pipeline.sources.image_folder.captions import OBJECT_ENDING, TEXT_ENDING
from recordmill.pipeline.sources.image_folder.metadata import NAMES
from recordmill.pipeline.sources.paths import is_image, listed
from recordmill.pipeline.spec.split_by import SYNONYMS

TABLES = ("parquet", "tfrecord", "webdataset", "jsonl", "csv", "tsv")
"""The formats that are surely data, in the order in which one of them is chosen."""
NAMING = ("jsonl", "csv", "tsv", "parquet")
"""The formats whose rows may name images."""
CELLS, IMAGES = ("csv", "tsv"), "image_folder"
SPLITS = {word: split for split, words in SYNONYMS.items() for word in (split, *words)}
HEADS = 16  # files of which the first bytes are looked at
SHOWN = 3
SHOWN_IMAGES = 1_000


@dataclass(frozen=True)
class Found:
    """The sources of some data, alike but for their paths and splits."""

    sources: Sequence[Mapping[str, Any]]
    """The options of each, as in the spec."""
    files: Sequence[FileInfo]
    """The files that are read; of a folder of images without metadata at most 1,000, with their captions."""
    listed: Sequence[FileInfo]
    """All files that hold a byte."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reasons, by option."""
    notes: Sequence[str] = ()
    """Comments on the data: what is not read, and what was not guessed."""
    beside: "Found | None" = None
    """A file beside images, whose rows may name them."""

    @property
    def split_names(self) -> list[str]:
        """The splits that whole sources belong to."""
        return [source["split"] for source in self.sources if "split" in source]


def recognize(files: Files, path: str) -> Found:
    """Finds the sources of the data at an absolute path or a URL: a folder, a file or a glob.

    Raises:
        UnknownDataError: nothing is there, or nothing that a source reads; the message says what could be done.
        OSError: it cannot be read.
    """
    if files.is_folder(path):
        return _folder(files, path.rstrip("/") or path)
    literal = is_glob(path) and "://" not in path and files.match(escape(path))
    matched = literal or files.match(path)
    found = [file for file in matched if file.bytes]
    if not found:
        raise UnknownDataError(f"{path}: {'is empty' if matched else 'no such file or folder, and no file is like it'}")
    forms = sorted({format_of(files, file.path) for file in spread(found, HEADS)})
    if len(forms) > 1:
        raise UnknownDataError(f"{path} matches files of several formats ({', '.join(forms)}): give a glob of one")
    return _table(files, forms[0], found, {path: None})


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """At most so many of some items, evenly spread, the first one included.

    >>> spread([0, 1, 2, 3, 4, 5], 3)
    [0, 2, 4]
    """
    return list(items) if len(items) <= count else [items[len(items) * n // count] for n in range(count)]


def _folder(files: Files, folder: str) -> Found:
    """The sources of a folder: of its images, or of the files of one format."""
    found = [file for file in files.match(f"{escape(folder)}/**") if file.bytes]
    if not found:
        raise UnknownDataError(f"{folder} holds no file, or only empty and hidden ones")
    by_format = dict[str, list[FileInfo]]()
    for file in found:
        if posixpath.basename(file.path) == MANIFEST_FILE and b'"build_key"' in read_head(files, file.path):
            raise UnknownDataError(f"{folder} holds a dataset that is built already: see `recordmill show`")
        by_format.setdefault(IMAGES if is_image(file.path) else format_by_name(file.path) or "", []).append(file)
    images, tables = by_format.get(IMAGES, []), [file for form in TABLES for file in by_format.get(form, ())]
    metadata = [file for file in tables if posixpath.basename(file.path) in NAMES]
    if images and (metadata or _bytes(images) >= _bytes(tables)):
        return _images(files, folder, found, metadata)
    form = next((form for form in TABLES if form in by_format), None)
    form = form or max(("text", "json"), key=lambda form: len(by_format.get(form, ())))
    chosen = by_format.get(form, found)
    for file in spread(chosen, HEADS):
        form = format_of(files, file.path)
    left = [file for other, group in by_format.items() if other != form and form in by_format for file in group]
    table = _table(files, form, chosen, _paths(folder, chosen), _left_out(folder, left))
    return replace(table, listed=found)


def _bytes(some: Sequence[FileInfo]) -> int:
    return sum(file.bytes for file in some)


def _images(files: Files, folder: str, found: Sequence[FileInfo], metadata: Sequence[FileInfo]) -> Found:
    """A folder of images, maybe with a file at its top whose rows name them."""
    images = [file for file in found if is_image(file.path)]
    others = [file for file in found if not is_image(file.path)]
    captions = _beside(images) if others else set()
    left = [file for file in others if file not in metadata and file.path not in captions]
    shown = spread(images, SHOWN_IMAGES)
    near = _beside(shown)
    read = metadata or [*shown, *(file for file in others if file.path in near)]
    rows = f"; the rows are those of {_named(folder, metadata)}" if metadata else ", each one a row"
    why = {"format": f"{counted(len(images), 'image')}{rows}"}
    tops = [file for file in left if posixpath.dirname(file.path) == folder and format_by_name(file.path) in NAMING]
    beside = None
    if len(tops) == 1 and not metadata:
        beside = _table(files, format_of(files, tops[0].path), tops, {tops[0].path: None})
    return Found([{"format": IMAGES, "path": folder}], read, found, why, _left_out(folder, left), beside)


def _beside(images: Sequence[FileInfo]) -> set[str]:
    """The paths of files that may be captions of images."""
    stems = [posixpath.splitext(file.path)[0] for file in images]
    return {f"{stem}{ending}" for stem in stems for ending in (TEXT_ENDING, OBJECT_ENDING)}


def _paths(folder: str, chosen: Sequence[FileInfo]) -> dict[str, str | None]:
    """The paths of the sources that read some files of a folder, and the split of each."""
    names = sorted(file.path for file in chosen)
    by_split = dict[str | None, list[str]]()
    for name in names:
        word = re.match(r"[A-Za-z]+", name[len(folder) + 1 :])  # `train/a.csv`, `test-0001.csv`
        by_split.setdefault(SPLITS.get(word[0].lower()) if word else None, []).append(name)
    if None in by_split or "train" not in by_split or len(by_split) == 1:
        by_split = {None: names}
    return {_path(folder, by_split[split], names): split for split in (None, *SYNONYMS) if split in by_split}


def _path(folder: str, some: Sequence[str], every: Sequence[str]) -> str:
    """A path that matches some files of a folder, and none of its others of that format."""
    if len(some) == 1:
        return some[0]
    endings = {_ending(name) for name in some}
    ending = endings.pop() if len(endings) == 1 else f"{posixpath.commonprefix(sorted(endings))}*"
    start = escape(posixpath.commonprefix(some))
    below = start[: start.rfind("/") + 1]
    patterns = (f"{below}*{ending}", f"{start}*{ending}", f"{below}**/*{ending}", f"{start}*")
    exact = (path for path in patterns if [name for name in every if glob_pattern(path).fullmatch(name)] == list(some))
    return next(exact, f"{escape(folder)}/**")


def _ending(path: str) -> str:
    """The ending of a name, with that of a compression."""
    plain, last = posixpath.splitext(path)
    return (posixpath.splitext(plain)[1] if codec(path) else "") + last


def _table(
    files: Files, form: str, found: Sequence[FileInfo], paths: Mapping[str, str | None], notes: Sequence[str] = ()
) -> Found:
    """The sources of files of one format; the first file shows how they are written."""
    options, why = dict[str, Any](), dict[str, str]()
    if form in (*CELLS, "jsonl", "json", "text"):
        head = read_head(files, found[0].path)
        note = encoding_note(head) if form in (*CELLS, "text") else ""  # JSON is UTF-8
        notes = [*notes, note] if note else notes
        form, options, why = _options(form, head, found)
    splits = [{"split": split} if split else {} for split in paths.values()]
    sources = [{"format": form, "path": path, **options, **split} for path, split in zip(paths, splits, strict=True)]
    count = {"format": counted(len(found), "file")} if len(found) > 1 == len(paths) else {}
    return Found(sources, found, found, {**count, **why}, notes)


def _options(form: str, head: bytes, found: Sequence[FileInfo]) -> tuple[str, dict[str, Any], dict[str, str]]:
    """The format of a source of files of text, its options and the reasons, by the first bytes of the first file."""
    if form in CELLS:
        return form, *cell_options(head, form)
    if form == "json" and are_json_lines(head):
        return "jsonl", {}, {"format": "each line is a JSON object"}
    if form == "jsonl" or (form == "json" and len(found) == 1):
        check_json_lines(found[0].path, head)
    if form == "json":
        why = "each file is one JSON text; to read its fields, make lines of it: jq -c ."
        return "text", {"document": "file"}, {"document": why}
    if form != "text":
        return form, {}, {}
    is_one = len(found) == 1
    why = "one file: each line is a row" if is_one else "many files: each is a row"
    return form, {"document": "line" if is_one else "file"}, {"document": why}


def counted(count: int, what: str) -> str:
    """A count in words: `1 text`, `2,000 texts`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _left_out(folder: str, files: Sequence[FileInfo]) -> list[str]:
    """A comment on files that are not read; nothing where there are none."""
    return [f"left out: {_named(folder, files)}"] if files else []


def _named(folder: str, files: Sequence[FileInfo]) -> str:
    """A count and the first few names."""
    names = listed(sorted(file.path[len(folder) + 1 :] for file in files), SHOWN)
    return names if len(files) < 2 else f"{len(files):,} files ({names})"
