"""The requests of this process to object stores, by kind: how many, bytes, repetitions and time.

>>> traffic = Traffic()
>>> traffic.add("get", bytes=120, milliseconds=31)
>>> by_kind(traffic.take()), traffic.take()
({'get': {'requests': 1, 'bytes': 120, 'milliseconds': 31}}, {})
"""

import threading
from collections import Counter
from collections.abc import Mapping

KINDS = {"GetObject": "get", "HeadObject": "head", "ListObjects": "list", "Delete": "delete", "Copy": "copy"}
"""The kinds by how S3's operations begin; all others write: `put`."""
ASKED = "asked"


class Traffic:
    """Counts of requests. May be used by several threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str, **counts: int) -> None:
        """Adds a request, with its counts: `bytes`, `retries`, `milliseconds`."""
        with self._lock:
            self._counts.update({f"{ASKED} {kind} {name}": count for name, count in {"requests": 1, **counts}.items()})

    def take(self) -> dict[str, int]:
        """Returns the counts since they were last taken."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return {name: count for name, count in taken.items() if count}


TRAFFIC = Traffic()  # the counts of this process


def by_kind(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Returns the counts of requests among others, by kind and name."""
    found: dict[str, dict[str, int]] = {}
    for name, count in counts.items():
        if name.startswith(f"{ASKED} "):
            _, kind, what = name.split(" ")
            found.setdefault(kind, {})[what] = count
    return found


def kind_of(operation: str) -> str:
    """Returns the kind of an operation of S3."""
    return next((kind for begin, kind in KINDS.items() if operation.startswith(begin)), "put")
