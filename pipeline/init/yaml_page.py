"""A page of YAML with a comment behind each line, in columns; what it says is read back as it was meant.

>>> page = Page()
>>> page.add("name", "a", "of the path")
>>> print(page, end="")
name: a  # of the path
"""

from dataclasses import dataclass, field
from typing import Any

import yaml

from recordmill.pipeline.spec.yaml_document import STRING

WIDEST = 48  # characters: behind a longer line its comment follows at once
SHOWN = 400  # characters of a comment


@dataclass
class Page:
    """Lines, each with its comment."""

    _lines: list[tuple[str, str]] = field(default_factory=list)

    def add(self, key: str, value: Any, why: str = "", indent: int = 0, *, item: bool = False) -> None:
        """Adds a key with its value in one line; an `item` of a list begins with it."""
        start = f"{' ' * (indent - 2)}- " if item else " " * indent
        self._lines.append((f"{start}{scalar(key)}: {scalar(value)}", _line(why)))

    def open(self, key: str, why: str = "", indent: int = 0) -> None:
        """Adds a key whose values follow."""
        self._lines.append((f"{' ' * indent}{key}:", _line(why)))

    def comment(self, text: str, why: str = "", indent: int = 0) -> None:
        """Adds a line that is a comment."""
        self._lines.append((f"{' ' * indent}# {_line(text)}", _line(why)))

    def blank(self) -> None:
        """Adds a blank line."""
        self._lines.append(("", ""))

    def __str__(self) -> str:
        """The page; the comments of lines that follow one another stand below each other."""
        return "".join(f"{line}\n" for block in self._blocks() for line in _aligned(block))

    def _blocks(self) -> list[list[tuple[str, str]]]:
        blocks: list[list[tuple[str, str]]] = [[]]
        for line, why in self._lines:
            if not line:
                blocks.append([])
            blocks[-1].append((line, why))
        return blocks


class _Dumper(yaml.SafeDumper):
    """Writes every string in one line: PyYAML would break lines, and write U+0085, which it reads as a break, bare."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(STRING, text, style=None if text.isprintable() else '"'),
)


def scalar(value: Any) -> str:
    """A value in YAML's flow style, in one line."""
    dumped = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def _aligned(block: list[tuple[str, str]]) -> list[str]:
    widths = [len(line) for line, why in block if why and len(line) <= WIDEST]
    width = max(widths, default=0)
    return [f"{line:<{width}}  # {why}" if why else line for line, why in block]


def _line(comment: str) -> str:
    """A comment in one line that any editor shows."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in comment)
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"
