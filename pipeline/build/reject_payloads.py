"""The lines of rejected rows, where the spec asks for them: read again from their files when a version is published.

Formats of lines have them: JSON Lines, CSV and TSV (the line where the record begins), lines of text, and metadata of
pictures in these formats. Of every other row the payload is null. A picture inside a line, a `data:` URL, is left out.

    published = with_payloads(plan, files, rejects)     # each with one key more, `payload`
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.csv.ranges import RecordRange
from recordmill.pipeline.sources.csv.records import Readable
from recordmill.pipeline.sources.encoded import open_utf8
from recordmill.pipeline.sources.image_folder.metadata import MetadataRows
from recordmill.pipeline.sources.jsonl.source import JsonRange
from recordmill.pipeline.sources.paths import join

MAX_CHARACTERS = 10_000
MAX_BYTES = 4 * MAX_CHARACTERS  # of UTF-8
BLOCK_BYTES = 1 << 20
LINE_BREAK = re.compile(rb"\r\n|\r|\n")
PICTURE = re.compile(r"(data:[^,\"]{0,100};base64,)[\w+/=%-]+", re.IGNORECASE)


def with_payloads(plan: BuildPlan, files: Files, rejects: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Adds to published rejects the lines that they were, at most 10,000 characters of each; null of other formats.

    Raises:
        OSError: a file cannot be read any more.
    """
    published = list(rejects)
    lines = dict[tuple[int, str], set[int]]()
    for one in published:
        if one["line"] is not None:
            lines.setdefault((one["source"], one["file"]), set()).add(one["line"])
    found = {place: _read(plan, files, *place, sorted(some)) for place, some in lines.items()}
    for one in published:
        yield one | {"payload": found.get((one["source"], one["file"]), {}).get(one["line"])}


def _read(plan: BuildPlan, files: Files, source: int, name: str, wanted: Sequence[int]) -> dict[int, str]:
    """Some lines of a file, by their numbers from 1; none where it is no file of lines."""
    work = next(chunk.work for chunk in plan.chunks if (chunk.source, chunk.file) == (source, name))
    work = work.work if isinstance(work, MetadataRows) else work
    if not isinstance(work, RecordRange | JsonRange):
        return {}
    encoding = work.encoding if isinstance(work, RecordRange) else "utf-8"
    path = join(plan.spec.source[source].root(files), name)
    with open_utf8(files, path, encoding) as file:
        found = pick_lines(file, wanted, any_break=isinstance(work, RecordRange))
    return {line: _shown(data) for line, data in found.items()}


def pick_lines(file: Readable, wanted: Sequence[int], *, any_break: bool) -> dict[int, bytes]:
    """The first 40,000 bytes of some lines, by their numbers from 1, which rise.

    Args:
        file: stands at its first line.
        wanted: the lines.
        any_break: whether CR and CRLF end a line as LF does.
    """
    found, line, held = dict[int, bytes](), 1, b""
    while block := held + (more := file.read(BLOCK_BYTES)):
        held = b"\r" if more and any_break and block.endswith(b"\r") else b""  # an LF may follow
        block = block.removesuffix(held)
        pieces = LINE_BREAK.split(block) if any_break and b"\r" in block else block.split(b"\n")
        for number in wanted[bisect_left(wanted, line) : bisect_right(wanted, line + len(pieces) - 1)]:
            found[number] = (found.get(number, b"") + pieces[number - line])[:MAX_BYTES]
        line += len(pieces) - 1
    return found


def _shown(line: bytes) -> str:
    text = line.removesuffix(b"\r").decode("utf-8", "backslashreplace")
    return PICTURE.sub(r"\1…", text)[:MAX_CHARACTERS]
