"""What lies at a path: the sources that read it, with their options, and why they are so."""

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.init.guess_dialect import guess_dialect, guess_encoding
from recordmill.pipeline.init.guess_kind import counted
from recordmill.pipeline.init.recognize_format import (
    UnknownDataError,
    check_json_lines,
    format_by_name,
    format_of,
    json_form,
    read_head,
)
from recordmill.pipeline.init.sampling import SAMPLED_FILES, spread
from recordmill.pipeline.sources.base import FileInfo, Files
from recordmill.pipeline.sources.compression import codec
from recordmill.pipeline.sources.globs import escape, folder_prefix, glob_pattern, is_glob
from recordmill.pipeline.sources.image_folder.captions import OBJECT_ENDING, TEXT_ENDING
from recordmill.pipeline.sources.image_folder.metadata import NAMES, metadata_files
from recordmill.pipeline.sources.paths import is_image, is_utf8
from recordmill.pipeline.spec.split_by import SYNONYMS

DATA = ("parquet", "tfrecord", "webdataset", "jsonl", "csv", "tsv")
DOCUMENTS = ("text", "json")
"""The formats of what may only tell of the data."""
BESIDE = ("jsonl", "csv", "tsv", "parquet")
"""The formats of files whose rows may name the pictures that they lie beside."""
SPLITS = {word: split for split, words in SYNONYMS.items() for word in (split, *words)}
FIRST_WORD = re.compile(r"[A-Za-z]+")
OWN_ENDINGS = {".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".tar", ".tar.gz", ".tgz", ".txt", ".text"}
"""The endings that a source reads of a folder."""
CAPTIONS = (TEXT_ENDING, OBJECT_ENDING)
SHOWN = 3


@dataclass(frozen=True)
class Found:
    """The sources of some data, alike but for their paths and splits."""

    sources: Sequence[Mapping[str, Any]]
    """Each one's options, as in the spec."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reasons by option."""
    left_out: str = ""
    """What lies there and is not read."""
    alternative: "Found | None" = None
    """A file beside pictures, whose rows may name them."""

    @property
    def split_names(self) -> list[str]:
        """The splits that the sources are of."""
        return list(dict.fromkeys(source["split"] for source in self.sources if "split" in source))


def recognize(files: Files, path: str) -> Found:
    """Finds out what lies at an absolute path or a URL: a folder, a file or a glob.

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
    form = _common_format(files, path, found)
    return _table(files, form, found, [(path, None)])


def _common_format(files: Files, path: str, found: Sequence[FileInfo]) -> str:
    if len(found) > 1 and any(is_image(file.path) for file in found):
        raise UnknownDataError(f"{path} matches pictures: give the folder, {folder_prefix(path)}")
    forms = Counter(format_of(files, file.path) for file in spread(list(found), SAMPLED_FILES))
    if len(forms) > 1:
        raise UnknownDataError(
            f"{path} matches files of several formats ({_counts(forms)}): give a glob of one of them"
        )
    return next(iter(forms))


def _folder(files: Files, folder: str) -> Found:
    found = [file for file in files.match(f"{escape(folder)}/**") if file.bytes]
    if not found:
        raise UnknownDataError(f"{folder} holds no file, or only empty and hidden ones")
    _check_unbuilt(files, folder, found)
    inside = [replace(file, path=file.path[len(folder) + 1 :]) for file in found]
    tables = _by_format(inside)
    if _are_pictures(inside, folder, tables):
        return _pictures(files, folder, inside, tables)
    form = _main_format(tables) or format_of(files, found[0].path)
    chosen = tables.get(form, inside)
    left = [file.path for file in inside if file not in chosen]
    if form in DOCUMENTS and len(left) > len(chosen):
        format_of(files, f"{folder}/{left[0]}")  # says what it is, if no source reads it
    whole = [replace(file, path=f"{folder}/{file.path}") for file in chosen]
    for file in spread(whole, SAMPLED_FILES):
        format_of(files, file.path)
    return replace(_table(files, form, whole, _paths(folder, form, chosen)), left_out=_named(left))


def _check_unbuilt(files: Files, folder: str, found: Sequence[FileInfo]) -> None:
    for file in found:
        if posixpath.basename(file.path) == MANIFEST_FILE and b'"build_key"' in read_head(files, file.path):
            raise UnknownDataError(
                f"{folder} holds a dataset that is built already, {file.path}: see `recordmill show`"
            )


def _main_format(tables: Mapping[str, Sequence[FileInfo]]) -> str | None:
    """The format that is read of a folder: the first of those that are surely data, else what most files are of."""
    data = next((form for form in DATA if form in tables), None)
    return data or max((form for form in DOCUMENTS if form in tables), key=lambda form: len(tables[form]), default=None)


def _are_pictures(inside: Sequence[FileInfo], folder: str, tables: Mapping[str, Sequence[FileInfo]]) -> bool:
    """Whether the pictures of a folder are its data: captions beside them are not."""
    pictures = [file for file in inside if is_image(file.path)]
    if not pictures or metadata_files(list(inside), folder):
        return bool(pictures)
    rows = [file for form in DATA for file in tables.get(form, ())]
    return sum(file.bytes for file in pictures) >= sum(file.bytes for file in rows)


def _by_format(inside: Sequence[FileInfo]) -> dict[str, list[FileInfo]]:
    tables: dict[str, list[FileInfo]] = {}
    for file in inside:
        form = format_by_name(file.path)
        if form:
            tables.setdefault(form, []).append(file)
    return tables


def _pictures(files: Files, folder: str, inside: Sequence[FileInfo], tables: Mapping[str, Sequence[FileInfo]]) -> Found:
    """A folder of pictures, maybe with a file at its top whose rows name them."""
    stems = {posixpath.splitext(file.path)[0] for file in inside if is_image(file.path)}
    others = [file.path for file in inside if not _is_used(file.path, stems)]
    metadata = metadata_files(list(inside), folder)
    pictures = counted(sum(is_image(file.path) for file in inside), "picture")
    rows = f"; the rows are those of {_named([file.path for file in metadata])}" if metadata else ", each one a row"
    options = {"format": "image_folder", "path": folder}
    found = Found([options], {"format": f"{pictures}{rows}"}, _named(others))
    if metadata:
        return found
    beside = [(form, file) for form in BESIDE for file in tables.get(form, ()) if "/" not in file.path]
    if len(beside) != 1:
        return found
    form, file = beside[0]
    whole = replace(file, path=f"{folder}/{file.path}")
    return replace(found, alternative=_table(files, form, [whole], [(whole.path, None)]))


def _is_used(path: str, stems: Collection[str]) -> bool:
    """Whether a file of a folder of pictures is read: a picture, a caption beside one, or metadata."""
    stem, ending = posixpath.splitext(path)
    return is_image(path) or posixpath.basename(path) in NAMES or (ending in CAPTIONS and stem in stems)


def _paths(folder: str, form: str, inside: Sequence[FileInfo]) -> list[tuple[str, str | None]]:
    """The paths of the sources that read some files of a folder, and the split that each one is."""
    splits = [split_of(file.path) for file in inside]
    if None in splits or "train" not in splits or len(set(splits)) == 1:
        return [(_path(folder, form, inside, inside), None)]
    by_split = {
        split: [file for file in inside if split_of(file.path) == split] for split in SYNONYMS if split in splits
    }
    return [(_path(folder, form, some, inside), split) for split, some in by_split.items()]


def split_of(path: str) -> str | None:
    """The split that a file is of, by its first folder's name or its own: `train/a.csv`, `test-0001.csv`."""
    first = path.split("/")[0]
    words = FIRST_WORD.match(first)
    return SPLITS.get(words[0].lower()) if words else None


def _path(folder: str, form: str, some: Sequence[FileInfo], every: Sequence[FileInfo]) -> str:
    """A path that matches some files of a folder, and none of its others of that format."""
    if len(some) == 1:
        return f"{folder}/{some[0].path}"
    names = sorted(file.path for file in some)
    endings = sorted({_ending(name) for name in names})
    is_flat = form == "text" or not any("/" in name for name in names)  # text is looked for in folders, too
    if len(some) == len(every) and OWN_ENDINGS.issuperset(endings) and is_flat:
        return folder
    ending = endings[0] if len(endings) == 1 else f"{posixpath.commonprefix(endings)}*"
    start = escape(posixpath.commonprefix(names))
    below = start[: start.rfind("/") + 1]
    for pattern in (f"{below}*{ending}", f"{start}*{ending}", f"{below}**/*{ending}", f"{start}*"):
        matches = glob_pattern(pattern).fullmatch
        if [file.path for file in every if matches(file.path)] == [file.path for file in some]:
            return f"{escape(folder)}/{pattern}"
    return f"{escape(folder)}/**"


def _ending(path: str) -> str:
    """The ending of a name, with that of a compression."""
    plain, last = posixpath.splitext(path)
    return (posixpath.splitext(plain)[1] if codec(path) else "") + last


def _table(files: Files, form: str, found: Sequence[FileInfo], paths: Sequence[tuple[str, str | None]]) -> Found:
    """The sources of files of one format; the first file tells how they are written."""
    options, why = _options(files, form, found)
    sources = [{**options, "path": path, **({"split": split} if split else {})} for path, split in paths]
    ordered = [{"format": source.pop("format"), "path": source.pop("path"), **source} for source in sources]
    told = {"format": counted(len(found), "file")} if len(found) > 1 == len(paths) else {}
    return Found(ordered, {**told, **why})


def _options(files: Files, form: str, found: Sequence[FileInfo]) -> tuple[dict[str, Any], dict[str, str]]:
    heads = [read_head(files, file.path) for file in spread(list(found), SAMPLED_FILES)]
    if form == "json":
        if all(json_form(head) == "lines" for head in heads):
            return {"format": "jsonl"}, {"format": "each line is a JSON object"}
        if len(found) == 1:
            check_json_lines(files, found[0].path, heads[0])
        why = "each file is one JSON text; to read its fields, make lines of it: jq -c ."
        return {"format": "text", "document": "file"}, {"document": why}
    if form == "jsonl":
        check_json_lines(files, found[0].path, heads[0])
    if form in ("csv", "tsv"):
        dialect = guess_dialect(heads[0], form)
        return {"format": form, **dialect.options}, dialect.why
    return _text_options(found, heads) if form == "text" else ({"format": form}, {})


def _text_options(found: Sequence[FileInfo], heads: Sequence[bytes]) -> tuple[dict[str, Any], dict[str, str]]:
    encoding, reason = guess_encoding(heads[0])
    options, why = ({}, {}) if encoding == "utf-8" else ({"encoding": encoding}, {"encoding": reason})
    if len(found) > 1:
        return {"format": "text", "document": "file", **options}, {"document": "many files: each is a row", **why}
    return {"format": "text", "document": "line", **options}, {"document": "one file: each line is a row", **why}


def _named(paths: Sequence[str]) -> str:
    """A count and the first few names; nothing of none."""
    if not paths:
        return ""
    shown = [path if is_utf8(path) and path.isprintable() else ascii(path) for path in sorted(paths)[:SHOWN]]
    names = ", ".join(shown)
    return names if len(paths) == 1 else f"{len(paths):,} files ({names}{', …' if len(paths) > SHOWN else ''})"


def _counts(forms: Counter[str]) -> str:
    return ", ".join(f"{form}: {count}" for form, count in sorted(forms.items()))
