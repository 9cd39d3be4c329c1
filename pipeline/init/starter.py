"""From a path to the text of a `dataset.yaml` that builds as it is: guessed, written, read back and tried."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.choose import dataset_name
from recordmill.pipeline.init.draft import make_draft
from recordmill.pipeline.init.recognize_format import UnknownDataError
from recordmill.pipeline.init.render import write_draft
from recordmill.pipeline.init.trial import try_spec
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.globs import escape, is_glob
from recordmill.pipeline.sources.paths import is_utf8
from recordmill.pipeline.spec.model import Name, parse_spec


def starter(path: str, files: Files, name: str | None = None, folder: str = ".") -> str:
    """Writes a starter spec for the data at a path.

    Args:
        path: a folder, a file or a glob, local or a URL.
        files: what opens it.
        name: the dataset's name; without one it comes of the path.
        folder: where the spec will lie, which its paths are relative to.

    Raises:
        UserError: no source reads what is there, or the name cannot be one; the message says what to do.
        OSError: it cannot be read.
    """
    whole = _absolute(path)
    name = dataset_name(whole) if name is None else _checked(name)
    place = partial(said, folder=os.path.abspath(folder), keep=os.path.isabs(path))
    draft = make_draft(files, whole)
    trial = try_spec(parse_spec(write_draft(draft, name, place)), draft.sample)
    first = f"Guesses by `recordmill init` for {path}; the reasons stand behind them."
    return write_draft(draft, name, place, [first, *trial.lines()], trial.limit())


def said(path: str, folder: str, *, keep: bool = False) -> str:
    """An absolute path, or a URL, as a spec that lies in `folder`, which is absolute, says it.

    One that is not below the folder stays absolute if it is to be kept.

    >>> said("/home/ann/data/rows.jsonl", "/home/ann/specs")
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


def write_new(file: Path, text: Callable[[], str]) -> None:
    """Writes a file that is not there yet.

    Raises:
        UserError: it is there, or cannot be written.
    """
    if file.exists():
        raise UserError(f"{file} is there already: name another file, or remove it")
    made = text()
    try:
        with file.open("x", encoding="utf-8", newline="\n") as opened:
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
