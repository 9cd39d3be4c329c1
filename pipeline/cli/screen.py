r"""Standard output or error as a rich console on which data is only ever text.

Markup such as `[bold]` and codes such as `:smile:` in it are shown as they are, and so is whatever would steer the
terminal (`pipeline.terminal_text`). URLs are shown without their secrets. Colours are asked for by `style=`.

>>> Screen().print("[red] \x1b[31m")  # doctest: +SKIP
[red] \x1b[31m
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from recordmill.pipeline.redaction import redacted
from recordmill.pipeline.terminal_text import printable


class Screen(Console):
    """A console that all commands print to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Makes text of a string, before its width is measured."""
        return super().render_str(printable(redacted(text)), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Makes what is printed; what came as no string has passed nothing before."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
