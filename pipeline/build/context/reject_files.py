"""Rejects on their way to the published JSONL: a file for each chunk and shard that has any, in the build's folder."""

import json
import os
from collections.abc import Iterator

from recordmill.pipeline.dataset.atomic_files import attempt_name, write_atomically
from recordmill.pipeline.sources.rejects import Reject


def write_rejects(folder: str, step: str, rejects: list[Reject]) -> str | None:
    """Writes a step's rejects under a name of this attempt's own; gives the name, None where there are none."""
    if not rejects:
        return None
    name = f"{attempt_name(step)}.jsonl"
    lines = "".join(json.dumps(reject.to_json()) + "\n" for reject in rejects)
    write_atomically(os.path.join(folder, name), lines.encode())
    return name


def read_rejects(folder: str, name: str) -> Iterator[Reject]:
    """Reads them back."""
    with open(os.path.join(folder, name), encoding="utf-8") as lines:
        for line in lines:
            yield Reject(**json.loads(line))
