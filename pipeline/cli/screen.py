r"""Standard output or error as a rich console that shows data as plain text; only `style=` sets colours.

Markup such as `[bold]` and codes such as `:smile:` have no effect, terminal escapes are escaped (`pipeline.safe_text`),
and URLs lose their secrets.

>>> Screen().print("[red] \x1b[31m")  # doctest: +SKIP
[red] \x1b[31m
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from recordmill.pipeline.private_folder import private_temporary_files
from recordmill.pipeline.safe_text import count as count
from recordmill.pipeline.safe_text import printable, redacted


class Screen(Console):
    """The console of all commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def on_broken_pipe(self) -> None:
        """Ends the process if standard output is closed; a build, which writes to another file, goes on quietly."""
        if self.file is sys.stdout:
            super().on_broken_pipe()
        self.quiet = True

    def render_str(self, text: str, **options: Any) -> Text:
        """Escapes a string before its width is measured."""
        return super().render_str(printable(redacted(text)), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escapes all output, including renderables."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def print_line(line: str) -> None:
    """Prints a line of any length on standard output."""
    Screen(soft_wrap=True).print(line)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Prints JSON on standard output, in ASCII, so data cannot control the terminal."""
    print(json.dumps(value, indent=indent))


def plain_table(*headers: str, right: Iterable[str] = ()) -> Table:
    """Makes a table without a frame; columns in `right` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left")
    return table


@contextmanager
def quiet() -> Iterator[None]:
    """Discards output of the process and its children, such as Beam's; makes their temporary files private."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with private_temporary_files():
            yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
        for descriptor in (*kept, nowhere):
            os.close(descriptor)
