"""Writes a draft as a spec: YAML with the reasons as comments, which stand below each other.

>>> page = Page()
>>> page.add("name", ("a", "by the path"))
>>> print(page, end="")
name: a  # by the path
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from recordmill.pipeline.init.choose import Draft
from recordmill.pipeline.init.guess import Choice
from recordmill.pipeline.init.recognize import Found
from recordmill.pipeline.spec.yaml_document import STRING

PATHS = ("path", "images")
WIDEST = 48  # characters: behind a longer line its comment follows at once
SHOWN = 400  # characters of a comment


@dataclass
class Page:
    """Lines, each with its comment."""

    _lines: list[tuple[str, str]] = field(default_factory=list)

    def text(self, text: str) -> None:
        """Adds a line as it is: of a comment, of a key whose values follow, or blank."""
        self._lines.append((_line(text), ""))

    def add(self, key: str, choice: Choice, start: str = "") -> None:
        """Adds a key with its value in one line, behind `start`; a key that begins with # is a comment."""
        value, why = choice
        comment = "# " if key.startswith("# ") else ""
        line = f"{start}{comment}{_scalar(key.removeprefix(comment))}: {_scalar(value)}"
        self._lines.append((line, _line(why)))

    def __str__(self) -> str:
        """The page; the comments of lines between two blank ones stand below each other."""
        text, block = "", list[tuple[str, str]]()
        for line, why in [*self._lines, ("", "")]:
            block.append((line, why))
            if not line:
                width = max((len(line) for line, why in block if why and len(line) <= WIDEST), default=0)
                text += "".join(f"{line:<{width}}  # {why}\n" if why else f"{line}\n" for line, why in block)
                block = []
        return text.removesuffix("\n")


class _Dumper(yaml.SafeDumper):
    """Writes every string in one line: PyYAML would break lines, and write U+0085, which it reads as a break, bare."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(STRING, text, style=None if text.isprintable() else '"'),
)


def _scalar(value: Any) -> str:
    """A value in YAML's flow style, in one line."""
    dumped = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def _line(comment: str) -> str:
    """A comment in one line that any editor shows."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in comment)
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"


def write_draft(
    draft: Draft,
    name: str,
    written_path: Callable[[str], str],
    notes: Sequence[str] = (),
    limit: tuple[float, str] | None = None,
) -> str:
    """Writes a draft.

    Args:
        draft: everything that the spec says.
        name: the dataset's name.
        written_path: gives an absolute path, or a URL, as the spec says it.
        notes: comments that stand first.
        limit: the share of rejects that a build takes, and why; None where it is not known yet.
    """
    page = Page()
    for note in notes:
        page.text(f"# {note}")
    page.add("name", (name, "the shards are named after it"))
    page.text("")
    _add_sources(page, draft.found, written_path)
    page.text("")
    for option, choice in draft.rows.items():
        page.add(option, choice)
    page.text("")
    page.text("features:")
    for feature, guess in draft.features.items():
        page.text(f"  {feature}:")
        kind, column = (
            {"kind": guess.options["kind"]},
            {} if guess.column == feature else {"column": (guess.column, "")},
        )
        for option, choice in {**kind, **column, **guess.options}.items():
            page.add(option, choice, "    ")
    for feature, guess in draft.left.items():
        instead, why = guess.options["#"]
        if instead:
            page.add(feature, (instead, why), "  # ")
        else:
            page.text(f"  # {guess.column or ascii('')}: {why}")
    page.text("")
    for option, choice in draft.label.items():
        page.add(option, choice)
    if limit is not None:
        page.text("")
        page.add("rejects", ({"max_share": limit[0]}, limit[1]))
    return str(page)


def _add_sources(page: Page, found: Found, written_path: Callable[[str], str]) -> None:
    for note in found.notes:
        page.text(f"# {note}")
    page.text("source:")
    for source in found.sources:
        start = "  " if len(found.sources) == 1 else "  - "
        for option, value in source.items():
            shown = written_path(value) if option in PATHS else value
            page.add(option, (shown, found.why.get(option, "")), start)
            start = " " * len(start)
