"""A draft as the text of a spec: YAML with the reasons as comments."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.globs import escape, is_glob
from pipeline.sources.paths import is_utf8
from pipeline.starter.contents import UnknownDataError
from pipeline.starter.draft import Draft
from pipeline.starter.guess import Guess
from pipeline.starter.page import Page

PATHS = ("path", "images")


def write_draft(draft: Draft, name: str, folder: str, notes: Sequence[str]) -> str:
    """Writes a draft.

    Args:
        draft: what it says.
        name: the dataset's name.
        folder: where the spec will lie, which paths are relative to.
        notes: comments that stand first.

    Raises:
        UnknownDataError: a path cannot be written down.
    """
    page = Page()
    for note in notes:
        page.text(f"# {note}")
    page.add("name", name, "the shards are named after it")
    page.text("")
    _add_sources(page, draft, folder)
    page.text("")
    _add_choice(page, "key", draft.key.value, draft.key.why, "COLUMN")
    page.add("splits", draft.splits.value, draft.splits.why)
    if draft.split_by.value:
        page.add("split_by", draft.split_by.value, draft.split_by.why)
    page.text("")
    _add_features(page, draft)
    page.text("")
    _add_choice(page, "label", draft.label.value, draft.label.why, "FEATURE")
    return str(page)


def _add_sources(page: Page, draft: Draft, folder: str) -> None:
    found = draft.found
    sources = [{option: _value(option, value, folder) for option, value in source.items()} for source in found.sources]
    if found.left_out:
        page.text(f"# left out: {found.left_out}")
    if draft.sample.columns.differ:
        page.text("# the files do not all have the same columns: what one of them lacks is optional")
    if len(sources) == 1:
        page.open("source")
        for option, value in sources[0].items():
            page.add(option, value, found.why.get(option, ""), 2)
        return
    page.open("source")
    for source in sources:
        for place, (option, value) in enumerate(source.items()):
            page.add(option, value, found.why.get(option, ""), 4, item=not place)


def _value(option: str, value: Any, folder: str) -> Any:
    return relative(value, folder) if option in PATHS else value


def relative(path: str, folder: str) -> str:
    """An absolute path, or a URL, as a spec that lies in `folder`, which is absolute, says it.

    >>> relative("/home/ann/data/rows.jsonl", "/home/ann/specs")
    '../data/rows.jsonl'

    Raises:
        UnknownDataError: it is not UTF-8.
    """
    if not is_utf8(path):
        raise UnknownDataError(f"{ascii(path)}: a path that is not UTF-8 cannot be written down: rename it")
    if "://" in path:
        return path
    is_there = os.path.exists(path)
    seen = os.path.relpath(path, folder if is_there or not is_glob(path) else escape(folder))
    return f"{seen}/" if os.path.isdir(path) else seen


def _add_choice(page: Page, key: str, value: str | None, why: str, stands_for: str) -> None:
    """A key of the spec; one without a value is a comment that shows how to set it."""
    if value is None:
        page.text(f"# {key}: {stands_for}", why)
    else:
        page.add(key, value, why)


def _add_features(page: Page, draft: Draft) -> None:
    page.open("features")
    for name, guess in draft.features.items():
        page.open(name, "", 2)
        options = dict(guess.options)
        kind = options.pop("kind")
        page.add("kind", kind, guess.why.get("kind", ""), 4)
        if guess.column != name:
            page.add("column", guess.column, "", 4)
        _add_options(page, options, guess.why)
    for guess in draft.left:
        page.text(f"  # {_shown(guess)}: {guess.why['kind']}")


def _add_options(page: Page, options: Mapping[str, Any], why: Mapping[str, str]) -> None:
    for option, value in options.items():
        page.add(option, value, why.get(option, ""), 4)


def _shown(guess: Guess) -> str:
    return guess.column if guess.column.isprintable() and guess.column else ascii(guess.column)
