"""This process's requests to object stores, by kind: number, bytes, retries and time.

>>> traffic = Traffic()
>>> traffic.add("get", bytes=120, milliseconds=31)
>>> by_kind(traffic.take()), traffic.take()
({'get': {'requests': 1, 'bytes': 120, 'milliseconds': 31}}, {})
"""

import threading
from collections import Counter
from collections.abc import Mapping

KINDS = {"GetObject": "get", "HeadObject": "head", "ListObjects": "list", "Delete": "delete", "Copy": "copy"}
"""Kinds by prefix of S3's operations; all others are `put`."""
ASKED = "asked"


class Traffic:
    """Counts of requests; thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str, **counts: int) -> None:
        """Adds a request with its `bytes`, `retries` and `milliseconds`."""
        with self._lock:
            self._counts.update({f"{ASKED} {kind} {name}": count for name, count in {"requests": 1, **counts}.items()})

    def take(self) -> dict[str, int]:
        """Returns the counts since the last call."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return {name: count for name, count in taken.items() if count}


TRAFFIC = Traffic()  # the counts of this process


def by_kind(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Picks the counts of requests, by kind and name."""
    found: dict[str, dict[str, int]] = {}
    for name, count in counts.items():
        if name.startswith(f"{ASKED} "):
            _, kind, what = name.split(" ")
            found.setdefault(kind, {})[what] = count
    return found


def kind_of(operation: str) -> str:
    """Returns the kind of an S3 operation."""
    return next((kind for begin, kind in KINDS.items() if operation.startswith(begin)), "put")
