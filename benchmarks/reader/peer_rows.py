"""What every peer's data is made of, in files that any library can read: JPEGs in folders by label, arrays of ids.

A process that imports PyTorch after TensorFlow is ended by LLVM, so each has a program of its own that writes formats:
`prepare.py` with `tf_formats.py`, and `torch_formats.py`.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARDS = 8

Photo = tuple[Path, int]
"""A JPEG file and its label."""


def once(path: Path, write: Callable[[Path], None]) -> None:
    """Makes a file or folder under another name first, so that a half-made one is never used."""
    partial = path.with_name(f"{path.name}.partial")
    if not path.exists():
        print(f"makes {path}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        write(partial)
        os.replace(partial, path)


def write_peers(folder: Path, writers: dict[str, Callable[[Path, Any], None]], rows: Any) -> None:
    """Writes the rows in every format that is not there yet, each in a folder of its name."""
    for name, write in writers.items():

        def fill(partial: Path, write: Callable[[Path, Any], None] = write) -> None:
            partial.mkdir()
            write(partial, rows)

        once(folder / name, fill)


def read_photos(folder: Path) -> list[Photo]:
    """Lists the JPEGs in the order that Recordmill stored them in, which is a hash's."""
    files = sorted((folder / "jpegs").glob("*/*.jpg"), key=lambda file: file.name)
    return [(file, int(file.parent.name)) for file in files]


@dataclass(frozen=True)
class Documents:
    """Labelled documents, one after another."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Where each document begins in `ids`, and at the end how many ids there are."""
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[NDArray[np.int64], int]:
        """Gives a document's ids and its label."""
        return self.ids[self.starts[number] : self.starts[number + 1]], int(self.labels[number])

    def rows(self, first: int = 0, step: int = 1) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Gives every document, or each of so many."""
        return (self[number] for number in range(first, len(self), step))

    def save(self, folder: Path) -> None:
        """Writes the arrays to a new folder."""
        folder.mkdir()
        for name in ("ids", "starts", "labels"):
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> "Documents":
        """Reads what `save` wrote."""
        return cls(*(np.load(folder / f"{name}.npy") for name in ("ids", "starts", "labels")))
