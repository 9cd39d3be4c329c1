"""Reads a version's files of rejected rows: lines of JSON, each with the row's place, key and reason.

for line, reject in read_reject_lines(folder, "rejects/rejected-00000-of-00001.jsonl"): print(reject["code"])
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, TypedDict

from recordmill.pipeline.dataset.safe_paths import Location, read_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, parse_json, read_as

MOST_BYTES = 2 << 30  # 2 GiB: ten million rejects
MOST_LINE_BYTES = 1 << 20  # 1 MiB: a place, a key and a message


class RejectLine(TypedDict, total=False):
    """A rejected row, as far as it is read."""

    id: str | None
    column: str | None
    code: str
    message: str
    file: str | None
    line: Count | None


def read_reject_lines(folder: Location, path: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Gives the lines of a file of rejects, as they are and as they are read; of an empty file none.

    Raises:
        DatasetError: the file leaves the folder, is missing, damaged, or larger than 2 GiB; a line is than 1 MiB.
    """
    try:
        data = read_inner(folder, path, MOST_BYTES)
    except OSError as error:
        raise DatasetError(f"{folder / path} cannot be read ({error.strerror}): run `recordmill verify`") from None
    for number, line in enumerate(BytesIO(data), start=1):
        try:
            if len(line) > MOST_LINE_BYTES:
                raise DatasetError(f"it holds {len(line):,} bytes, and a reject at most {MOST_LINE_BYTES:,}")
            reject = parse_json(line)
            read_as(reject, RejectLine, "a reject")
        except DatasetError as error:
            raise DatasetError(
                f"{folder / path}, line {number:,}, is broken ({error}): run `recordmill verify`"
            ) from None
        yield line, reject
