"""A draft as the text of a spec: YAML with the reasons as comments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recordmill.pipeline.init.draft import Draft
from recordmill.pipeline.init.yaml_page import Page

PATHS = ("path", "images")


def write_draft(
    draft: Draft,
    name: str,
    place: Callable[[str], str],
    notes: Sequence[str] = (),
    limit: tuple[float, str] | None = None,
) -> str:
    """Writes a draft.

    Args:
        draft: what it says.
        name: the dataset's name.
        place: how the spec says an absolute path, or a URL.
        notes: comments that stand first.
        limit: the share of rejects that a build takes, and why; None where it is not known yet.
    """
    page = Page()
    for note in notes:
        page.comment(note)
    page.add("name", name, "the shards are named after it")
    page.blank()
    _add_sources(page, draft, place)
    page.blank()
    _add_choice(page, "key", draft.key.value, draft.key.why, "COLUMN")
    page.add("splits", draft.splits.value, draft.splits.why)
    if draft.split_by.value:
        page.add("split_by", draft.split_by.value, draft.split_by.why)
    page.blank()
    _add_features(page, draft)
    page.blank()
    _add_choice(page, "label", draft.label.value, draft.label.why, "FEATURE")
    if limit is not None:
        page.blank()
        page.add("rejects", {"max_share": limit[0]}, limit[1])
    return str(page)


def _add_sources(page: Page, draft: Draft, place: Callable[[str], str]) -> None:
    found = draft.found
    sources = [
        {option: place(value) if option in PATHS else value for option, value in source.items()}
        for source in found.sources
    ]
    if found.left_out:
        page.comment(f"left out: {found.left_out}")
    if draft.sample.columns.differ:
        page.comment("the files do not all have the same columns: what one of them lacks is optional")
    if len(sources) == 1:
        page.open("source")
        for option, value in sources[0].items():
            page.add(option, value, found.why.get(option, ""), 2)
        return
    page.open("source")
    for source in sources:
        for at, (option, value) in enumerate(source.items()):
            page.add(option, value, found.why.get(option, ""), 4, item=not at)


def _add_choice(page: Page, key: str, value: str | None, why: str, stands_for: str) -> None:
    """A key of the spec; one without a value is a comment that shows how to set it."""
    if value is None:
        page.comment(f"{key}: {stands_for}", why)
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
        page.comment(f"{guess.column or ascii('')}: {guess.why['kind']}", indent=2)


def _add_options(page: Page, options: Mapping[str, Any], why: Mapping[str, str]) -> None:
    for option, value in options.items():
        page.add(option, value, why.get(option, ""), 4)
