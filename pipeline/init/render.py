"""Writes a draft as a spec: YAML with the reasons as comments, which stand below each other."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml

from recordmill.pipeline.init.choose import Draft
from recordmill.pipeline.init.guess import Choice
from recordmill.pipeline.init.recognize import Recognized
from recordmill.pipeline.spec.yaml_document import STRING

PATHS = ("path", "images")
COMMENTS = 46  # the column of the comments; behind a longer line its comment follows at once
LONG = 120  # the comment of a longer line stands above it
SHOWN = 400  # characters of a comment


class _Dumper(yaml.SafeDumper):
    """Writes every string in one line: PyYAML would break lines, and write U+0085, which it reads as a break, bare."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(STRING, text, style=None if text.isprintable() else '"'),
)


def option_line(key: str, choice: Choice, start: str = "") -> str:
    """A key with its value in one line, behind `start`, and the reason as a comment behind or above it.

    A key may begin with # itself: then all of the line is a comment.

    >>> option_line("name", ("a", "by the path"))
    'name: a                                         # by the path'
    """
    value, why = choice
    comment = "# " if key.startswith("# ") else ""
    line = f"{start}{comment}{_scalar(key.removeprefix(comment))}: {_scalar(value)}"
    if len(line) > LONG and why:
        return f"{' ' * len(start)}# {shown(why)}\n{line}"
    return f"{line:<{COMMENTS}}  # {shown(why)}" if why else line


def _scalar(value: Any) -> str:
    """A value in YAML's flow style, in one line."""
    dumped = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def shown(comment: str) -> str:
    """A comment in one line that any editor shows."""
    line = "".join(letter if letter.isprintable() else "�" for letter in comment)
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def write_draft(
    draft: Draft,
    name: str,
    written_path: Callable[[str], str],
    notes: Sequence[str] = (),
    limit: Choice | None = None,
) -> str:
    """Writes a draft.

    Args:
        draft: everything that the spec says.
        name: the dataset's name.
        written_path: gives an absolute path, or a URL, as the spec says it.
        notes: comments that stand first.
        limit: the limit of rejects that a build would need, which the user has to choose; None where it needs none.
    """
    lines = [*(f"# {shown(note)}" for note in notes), option_line("name", (name, "the shards are named after it")), ""]
    lines += [*_source_lines(draft.data, written_path), ""]
    lines += [*(option_line(option, choice) for option, choice in draft.rows.items()), "", "features:"]
    for feature, guess in draft.features.items():
        named = {} if guess.column == feature else {"column": (guess.column, "")}
        options = {"kind": guess.options["kind"], **named, **guess.options}
        lines += [f"  {feature}:", *(option_line(option, choice, "    ") for option, choice in options.items())]
    for guess in draft.left:
        lines.append(shown(f"  # {guess.column or ascii('')}: {guess.options['#'][1]}"))
    lines += ["", *(option_line(option, choice) for option, choice in draft.label.items())]
    if limit is not None:
        lines += ["", option_line("# rejects", limit)]
    return "".join(f"{line}\n" for line in lines)


def _source_lines(data: Recognized, written_path: Callable[[str], str]) -> Iterator[str]:
    yield from (f"# {shown(note)}" for note in data.notes)
    yield "source:"
    for source in data.sources:
        start = "  " if len(data.sources) == 1 else "  - "
        for option, value in source.items():
            text = written_path(value) if option in PATHS else value
            yield option_line(option, (text, data.why.get(option, "")), start)
            start = " " * len(start)
