"""From a path to the text of a `dataset.yaml` that builds as it is: guessed, written, read back and tried."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.choose import make_draft, valid_name
from recordmill.pipeline.init.formats import UnknownDataError
from recordmill.pipeline.init.images import images_folder
from recordmill.pipeline.init.recognize import recognize
from recordmill.pipeline.init.render import write_draft
from recordmill.pipeline.init.sample import Sample
from recordmill.pipeline.init.trial import try_spec
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.globs import escape, is_glob
from recordmill.pipeline.sources.paths import is_utf8
from recordmill.pipeline.spec.model import Name, parse_spec

GENERIC = {"data", "dataset", "files", "images", "imgs", "rows", "shards", "train"}
"""The names of folders and files that say nothing of the data: the folder above says more."""
RELATIVE = "Paths are relative to the folder of this file: keep it where `init` ran, or write it with `--output FILE`."
BEGINNINGS = "Of large files the first rows were read: where rows are sorted, the others may be different."


def starter(path: str, files: Files, name: str | None = None, folder: str | None = None) -> str:
    """Writes a starter spec for the data at a path.

    Args:
        path: a folder, a file or a glob, local or a URL.
        files: opens it.
        name: the dataset's name; without one it comes from the path.
        folder: the folder of the spec, which its paths are relative to; the working folder where it is not known.

    Raises:
        UserError: no source reads what is there, or the name cannot be one; the message says what to do.
        OSError: it cannot be read.
    """
    whole = _absolute(path)
    name = dataset_name(whole) if name is None else _checked(name)
    written = partial(written_path, folder=os.path.abspath(folder or "."), keep=os.path.isabs(path))
    sample = Sample(files, recognize(files, whole))
    folder_of_images = images_folder(sample, files)
    if folder_of_images:
        sample = Sample(files, sample.data.with_images(folder_of_images))
    draft = make_draft(sample)
    tried = parse_spec(write_draft(draft.answered(), name, lambda path: path))
    lines, limit = try_spec(tried, draft.features.values(), sample)
    notes = [f"Guesses by `recordmill init` for {path}; the reasons stand behind them.", *lines]
    if not sample.files.is_whole:
        notes.append(BEGINNINGS)
    if folder is None and "://" not in whole and not os.path.isabs(written(whole)):
        notes.append(RELATIVE)
    return write_draft(draft, name, written, notes, limit)


def dataset_name(path: str) -> str:
    """A name for the data at an absolute path, or a URL: that of its last folder or file that is not generic."""
    is_there = "://" not in path and os.path.exists(path)  # whatever its name holds, it is no glob
    parts = [part for part in re.sub(r"^\w+://", "", path).split("/") if is_there or not is_glob(part)]
    names = [valid_name(re.sub(r"\.[A-Za-z]\w*(\.\w+)?$", "", part), "") for part in reversed(parts)]
    return next((name for name in names if name and name.lower() not in GENERIC), "dataset")


def written_path(path: str, folder: str, *, keep: bool = False) -> str:
    """An absolute path, or a URL, as a spec that lies in `folder`, which is absolute, says it.

    A path that is not below the folder stays absolute if it is to be kept.

    >>> written_path("/home/ann/data/rows.jsonl", "/home/ann/specs")
    '../data/rows.jsonl'

    Raises:
        UnknownDataError: it is not UTF-8.
    """
    if not is_utf8(path):
        raise UnknownDataError(f"{ascii(path)}: a path that is not UTF-8 cannot be written down: rename it")
    start = folder if os.path.exists(path) or not is_glob(path) else escape(folder)
    if "://" in path or (keep and not f"{path}/".startswith(f"{start}/")):
        return path
    seen = os.path.relpath(path, start)
    return f"{seen}/" if os.path.isdir(path) else seen


def write_spec(file: Path, text: Callable[[], str], *, force: bool = False) -> None:
    """Writes a file; one that is there only with `force`.

    Raises:
        UserError: it is there, or cannot be written.
    """
    if file.exists() and not force:
        raise UserError(f"{file} is there already: name another file, or write over it with --force")
    made = text()
    try:
        with file.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
            opened.write(made)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _absolute(path: str) -> str:
    """A path with the folders that lead to it; a glob stays one."""
    if "://" in path:
        return path
    here = os.getcwd() if os.path.exists(path) else escape(os.getcwd())
    return os.path.normpath(os.path.join(here, path))


def _checked(name: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(name)
    except ValidationError:
        message = f"--name: {name!r} is no name of a dataset: a letter, then letters, digits and underscores"
        raise UserError(message) from None
