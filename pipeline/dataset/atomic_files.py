"""Small JSON reports in the build's folder: what each step did, written whole or not at all.

A report's rename is its step's commit: a repeated step writes the same report again.
"""

import json
import os
import uuid
from pathlib import Path
from typing import Any


def attempt_name(prefix: str) -> str:
    """A name that no other attempt at the same step has."""
    return f"{prefix}.{uuid.uuid4().hex}"


def write_atomically(path: str, data: bytes) -> None:
    """Writes a file that is seen whole or not at all."""
    temporary = attempt_name(path)
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def sync_tree(folder: str) -> None:
    """Makes the machine's disk hold the files in a local folder, whatever happens then."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def write_report(folder: str, name: str, report: dict[str, Any]) -> None:
    """Writes `folder/name.json`."""
    write_atomically(os.path.join(folder, f"{name}.json"), json.dumps(report).encode())


def read_report(folder: str, name: str) -> dict[str, Any] | None:
    """Reads a report; None where there is none."""
    try:
        report: dict[str, Any] = json.loads(Path(folder, f"{name}.json").read_bytes())
    except FileNotFoundError:
        return None
    return report
