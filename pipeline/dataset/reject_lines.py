"""Reads a version's files of rejected rows: lines of JSON, each with the row's place, key and reason.

for line, reject in read_reject_lines(folder, "rejects/rejected-00000-of-00001.jsonl"): print(reject["code"])
"""

import json
from collections.abc import Iterator
from typing import Any

from recordmill.pipeline.dataset.safe_paths import Location, read_inner
from recordmill.pipeline.errors import DatasetError


def read_reject_lines(folder: Location, path: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Gives the lines of a file of rejects, as they are and as they are read; of an empty file none.

    Raises:
        DatasetError: the file leaves the folder, is missing, or is damaged.
    """
    try:
        data = read_inner(folder, path)
    except OSError as error:
        raise DatasetError(f"{folder / path} cannot be read ({error.strerror}): run `recordmill verify`") from None
    for line in data.splitlines(keepends=True):
        try:
            reject = json.loads(line)
        except (ValueError, RecursionError):
            reject = None
        if not isinstance(reject, dict):
            raise DatasetError(f"{folder / path} is broken: run `recordmill verify`")
        yield line, reject
