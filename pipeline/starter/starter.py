"""From a path to the text of a `dataset.yaml` that builds as it is: guessed, written, read back and tried."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.errors import UserError
from pipeline.globs import escape
from pipeline.sources.base import Files
from pipeline.spec import Name, parse_spec
from pipeline.starter.choices import dataset_name
from pipeline.starter.draft import Draft, make_draft
from pipeline.starter.trial import try_spec
from pipeline.starter.written import write_draft


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
    whole, folder = _absolute(path), os.path.abspath(folder)
    name = dataset_name(whole) if name is None else _checked(name)
    draft = make_draft(files, whole)
    spec = parse_spec(write_draft(draft, name, folder, []))
    trial = try_spec(spec, draft.sample)
    notes = [
        f"Guesses by `recordmill init` for {_shown(path)}; the reasons stand behind them.",
        *trial.lines(),
        *_warning(draft, trial.splits.get("train", 0)),
    ]
    return write_draft(draft, name, folder, notes)


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
    is_there = "://" in path or os.path.exists(path)
    return path if "://" in path else os.path.join(os.getcwd() if is_there else escape(os.getcwd()), path)


def _checked(name: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(name)
    except ValidationError:
        message = f"--name: {name!r} is no name of a dataset: a letter, then letters, digits and underscores"
        raise UserError(message) from None


def _warning(draft: Draft, train: int) -> list[str]:
    """What will stop a build."""
    if train:
        return []
    return ["None of them is a good row of the split train, which a build needs."]


def _shown(path: str) -> str:
    return re.sub(r"\s+", " ", path) if path.isprintable() else ascii(path)
