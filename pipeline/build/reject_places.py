"""Finds the file and line of a rejected row from its chunk and position, and gives rejects their published form.

>>> from types import SimpleNamespace as Made
>>> chunks = [Made(source=0, file="a.jsonl"), Made(source=0, file="a.jsonl")]
>>> reader = Made(locate=lambda chunk, position: (chunk.file, position + 1))
>>> plan = Made(chunks=chunks, sources=[Made(reader=reader, index=0)], gaps=frozenset())
>>> places = RejectPlaces(plan, [100, 40])
>>> places.of(1, 6)
Place(source=0, file='a.jsonl', line=107)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.sources.faults import Reject


class Place(NamedTuple):
    """The file and line of a row."""

    source: int
    """The source's index in the spec, from 0."""
    file: str
    """Relative to the source's folder."""
    line: int | None
    """The line, or the number of the record, from 1.

    None for a listing, if it is unknown yet, or behind a part of the file that a trial leaves out.
    """

    def words(self) -> str:
        """The place in a message: `rows.jsonl, line 7`."""
        return self.file if self.line is None else f"{self.file}, line {self.line}"


def one_line(text: str) -> str:
    """A text of the data for a message: in one line, with control characters escaped."""
    return printable(text).replace("\n", "\\n")


class RejectPlaces:
    """The places of a build's rows."""

    def __init__(self, plan: BuildPlan, positions: Sequence[int | None]) -> None:
        """Takes the number of positions of each chunk, by its report; None for one that is not read yet."""
        self._plan = plan
        self._bases = list[int | None]()
        before: dict[tuple[int, str], int | None] = {}
        for number, (chunk, count) in enumerate(zip(plan.chunks, positions, strict=True)):
            base = None if number in plan.gaps else before.get((chunk.source, chunk.file), 0)
            self._bases.append(base)
            before[chunk.source, chunk.file] = None if base is None or count is None else base + count

    def of(self, number: int, position: int) -> Place:
        """The place of a position of a chunk."""
        chunk, base = self._plan.chunks[number], self._bases[number]
        source = self._plan.sources[chunk.source]
        file, line = source.reader.locate(chunk, position)
        return Place(source.index, file, None if line is None or base is None else base + line)

    def published(self, reject: Reject) -> dict[str, Any]:
        """A reject's line of the published JSONL."""
        place, message = self.of(reject.chunk, reject.position), reject.message
        if reject.first_chunk is not None and reject.first_position is not None:
            message += f": {self.of(reject.first_chunk, reject.first_position).words()}, which stays"
        return {
            "id": reject.key,
            "column": reject.column,
            "code": reject.reason,
            "message": message,
            "source": place.source,
            "file": place.file,
            "line": place.line,
        }

    def example(self, reject: Reject) -> str:
        """A reject as an example in a message: its place, its column, and its fault."""
        column = "" if reject.column is None else f", column '{reject.column}'"
        words = f"{self.of(reject.chunk, reject.position).words()}{column}: {self.published(reject)['message']}"
        return one_line(words)
