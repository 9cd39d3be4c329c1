"""Lists the data at a path, once, and finds the sources that read it, with their options and the reasons."""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.init.dialect import guess_dialect, guess_encoding
from recordmill.pipeline.init.formats import (
    UnknownDataError,
    are_json_lines,
    check_json_lines,
    format_by_name,
    format_of,
    read_head,
)
from recordmill.pipeline.sources.base import FileInfo, Files
from recordmill.pipeline.sources.compression import codec
from recordmill.pipeline.sources.globs import escape, folder_prefix, glob_pattern, is_glob
from recordmill.pipeline.sources.image_folder.captions import OBJECT_ENDING, TEXT_ENDING
from recordmill.pipeline.sources.image_folder.metadata import NAMES, metadata_files
from recordmill.pipeline.sources.paths import is_image, listed
from recordmill.pipeline.spec.split_by import SYNONYMS

TABLES = ("parquet", "tfrecord", "webdataset", "jsonl", "csv", "tsv")
"""The formats that are surely data, in the order in which one of them is chosen."""
DOCUMENTS = ("text", "json")
"""The formats that may only describe the data."""
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
    """All files that hold a byte, those that are not read included."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reasons, by option."""
    left_out: str = ""
    """The files that are not read."""
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
    if len(found) > 1 and any(is_image(file.path) for file in found):
        raise UnknownDataError(f"{path} matches images: give the folder, {folder_prefix(path)}")
    forms = Counter(format_of(files, file.path) for file in spread(found, HEADS))
    if len(forms) > 1:
        counts = ", ".join(f"{form}: {count}" for form, count in sorted(forms.items()))
        raise UnknownDataError(f"{path} matches files of several formats ({counts}): give a glob of one of them")
    return _table(files, next(iter(forms)), found, {path: None})


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
    _check_unbuilt(files, folder, found)
    by_format: dict[str, list[FileInfo]] = {}
    for file in found:
        form = IMAGES if is_image(file.path) else format_by_name(file.path) or ""
        by_format.setdefault(form, []).append(replace(file, path=file.path[len(folder) + 1 :]))
    tables = sum(file.bytes for form in TABLES for file in by_format.get(form, ()))
    images = by_format.get(IMAGES, [])
    has_metadata = any(posixpath.basename(file.path) in NAMES for form in NAMING for file in by_format.get(form, ()))
    if images and (has_metadata or sum(file.bytes for file in images) >= tables):
        return _images(files, folder, found, by_format)
    documents = max(DOCUMENTS, key=lambda form: len(by_format.get(form, ())))
    form = next((form for form in (*TABLES, documents) if form in by_format), "") or format_of(files, found[0].path)
    chosen = by_format.get(form) or [file for group in by_format.values() for file in group]
    left = [file.path for other, group in by_format.items() if other != form and form in by_format for file in group]
    if form in DOCUMENTS and len(left) > len(chosen):
        format_of(files, f"{folder}/{left[0]}")  # raises where no source reads it
    whole = [replace(file, path=f"{folder}/{file.path}") for file in chosen]
    for file in spread(whole, HEADS):
        format_of(files, file.path)
    table = _table(files, form, whole, _paths(folder, chosen))
    return replace(table, left_out=_named(left), listed=found)


def _check_unbuilt(files: Files, folder: str, found: Sequence[FileInfo]) -> None:
    for file in found:
        if posixpath.basename(file.path) == MANIFEST_FILE and b'"build_key"' in read_head(files, file.path):
            message = f"{folder} holds a dataset that is built already, {file.path}: see `recordmill show`"
            raise UnknownDataError(message)


def _images(files: Files, folder: str, found: list[FileInfo], by_format: Mapping[str, list[FileInfo]]) -> Found:
    """A folder of images, maybe with a file at its top whose rows name them."""
    images = by_format[IMAGES]
    others = [file for form, group in by_format.items() if form != IMAGES for file in group]
    metadata = [file.path for file in metadata_files(others, folder)]
    near = _beside(images) if others else set()
    left_out = _named([file.path for file in others if file.path not in near.union(metadata)])
    shown = spread(images, SHOWN_IMAGES)
    read = set(metadata) or {file.path for file in shown}.union(_beside(shown))
    files_read = [file for file in found if file.path[len(folder) + 1 :] in read]
    rows = f"; the rows are those of {_named(metadata)}" if metadata else ", each one a row"
    why = {"format": f"{counted(len(images), 'image')}{rows}"}
    beside = [(form, file) for form in NAMING for file in by_format.get(form, ()) if "/" not in file.path]
    table = None
    if len(beside) == 1 and not metadata:
        form, file = beside[0]
        path = f"{folder}/{file.path}"
        table = replace(_table(files, form, [replace(file, path=path)], {path: None}), listed=found)
    return Found([{"format": IMAGES, "path": folder}], files_read, found, why, left_out, table)


def _beside(images: Sequence[FileInfo]) -> set[str]:
    """The paths of files that may be captions of images."""
    stems = [posixpath.splitext(file.path)[0] for file in images]
    return {f"{stem}{ending}" for stem in stems for ending in (TEXT_ENDING, OBJECT_ENDING)}


def _paths(folder: str, chosen: Sequence[FileInfo]) -> dict[str, str | None]:
    """The paths of the sources that read some files of a folder, and the split of each."""
    names = sorted(file.path for file in chosen)
    by_split: dict[str | None, list[str]] = {}
    for name in names:
        by_split.setdefault(_split_of(name), []).append(name)
    if None in by_split or "train" not in by_split or len(by_split) == 1:
        return {_path(folder, names, names): None}
    return {_path(folder, by_split[split], names): split for split in SYNONYMS if split in by_split}


def _split_of(path: str) -> str | None:
    """The split of a file, by its first folder's name or its own: `train/a.csv`, `test-0001.csv`."""
    word = re.match(r"[A-Za-z]+", path)
    return SPLITS.get(word[0].lower()) if word else None


def _path(folder: str, some: Sequence[str], every: Sequence[str]) -> str:
    """A path that matches some files of a folder, and none of its others of that format."""
    if len(some) == 1:
        return f"{folder}/{some[0]}"
    endings = {_ending(name) for name in some}
    ending = endings.pop() if len(endings) == 1 else f"{posixpath.commonprefix(sorted(endings))}*"
    start = escape(posixpath.commonprefix(some))
    below = start[: start.rfind("/") + 1]
    for pattern in (f"{below}*{ending}", f"{start}*{ending}", f"{below}**/*{ending}", f"{start}*"):
        matches = glob_pattern(pattern).fullmatch
        if [name for name in every if matches(name)] == list(some):
            return f"{escape(folder)}/{pattern}"
    return f"{escape(folder)}/**"


def _ending(path: str) -> str:
    """The ending of a name, with that of a compression."""
    plain, last = posixpath.splitext(path)
    return (posixpath.splitext(plain)[1] if codec(path) else "") + last


def _table(files: Files, form: str, found: Sequence[FileInfo], paths: Mapping[str, str | None]) -> Found:
    """The sources of files of one format; the first file shows how they are written."""
    options, why = _options(files, form, [file.path for file in found])
    form = options.pop("format", form)
    splits = [{"split": split} if split else {} for split in paths.values()]
    sources = [{"format": form, "path": path, **options, **split} for path, split in zip(paths, splits, strict=True)]
    count = {"format": counted(len(found), "file")} if len(found) > 1 == len(paths) else {}
    return Found(sources, found, found, {**count, **why})


def _options(files: Files, form: str, paths: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options of files of a format, maybe with another `format`; and the reasons."""
    if form == "json" and all(are_json_lines(read_head(files, path)) for path in spread(paths, HEADS)):
        return {"format": "jsonl"}, {"format": "each line is a JSON object"}
    if form == "jsonl" or (form == "json" and len(paths) == 1):
        check_json_lines(files, paths[0])
    if form == "json":
        why = "each file is one JSON text; to read its fields, make lines of it: jq -c ."
        return {"format": "text", "document": "file"}, {"document": why}
    if form in CELLS:
        return guess_dialect(read_head(files, paths[0]), form)
    if form != "text":
        return {}, {}
    options, why_encoding = guess_encoding(read_head(files, paths[0]))
    document, why = (
        ("file", "many files: each is a row") if len(paths) > 1 else ("line", "one file: each line is a row")
    )
    return {"document": document, **options}, {"document": why, **why_encoding}


def counted(count: int, what: str) -> str:
    """A count in words: `1 text`, `2,000 texts`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _named(paths: Sequence[str]) -> str:
    """A count and the first few names; nothing where there are none."""
    names = listed(sorted(paths), SHOWN) if paths else ""
    return names if len(paths) < 2 else f"{len(paths):,} files ({names})"
