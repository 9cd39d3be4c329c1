"""The first listing of the sources' files; a build compares a later one with it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from heapq import merge
from itertools import groupby
from typing import BinaryIO

from recordmill.pipeline.build.context.arrow_files import HashedRows
from recordmill.pipeline.build.inputs.input_table import Remembered, Times
from recordmill.pipeline.build.inputs.span_sources import list_groups
from recordmill.pipeline.dataset.manifest import Location
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import FileInfo, Files, StoreFiles
from recordmill.pipeline.spec.model import Spec


class Listings(Files):
    """Files with cached listings, which have identity times."""

    def __init__(self, files: Files, times: Times | None = None) -> None:
        """Takes the files, and the identity times of some."""
        self.files, self.times = files, times or Times()
        self._listed: dict[str, Sequence[FileInfo]] = {}

    def take(self, times: Times) -> None:
        """Sets the identity times of files, listed ones included."""
        self.times = times
        if times:
            self._listed = {pattern: times.identified(listed) for pattern, listed in self._listed.items()}

    def again(self) -> "Listings":
        """Returns the files without cached listings."""
        files = self.files.again() if isinstance(self.files, StoreFiles) else self.files
        return Listings(files, self.times)

    def match(self, pattern: str) -> Sequence[FileInfo]:
        """Lists the files that a glob matched at the first call."""
        if pattern not in self._listed:
            listed = self.files.match(pattern)
            self._listed[pattern] = self.times.identified(listed) if self.times else listed
        return self._listed[pattern]

    def is_folder(self, path: str) -> bool:
        return self.files.is_folder(path)

    def open(self, path: str) -> BinaryIO:
        return self.files.open(path)

    def read(self, path: str, start: int = 0, length: int | None = None, most: int | None = None) -> bytes:
        return self.files.read(path, start, length, most)

    def left_out(self) -> Collection[str]:
        return self.files.left_out()

    def has(self, path: str) -> bool:
        """Whether a file was listed; compares hashes."""
        return bool(self._paths.find([path])[0] >= 0)

    @cached_property
    def _paths(self) -> HashedRows:
        """The hashes of all paths; a set of paths takes 200 bytes a file."""
        return HashedRows(file.path for listed in self._listed.values() for file in listed)

    def changes(self) -> Iterator[tuple[str, str]]:
        """Lists everything again; yields each changed file, at least once, with the change."""
        again = self.again()
        for pattern, before in self._listed.items():
            try:
                now = again.match(pattern)
            except OSError:
                now = ()
            yield from _differences(before, now)


def _differences(before: Sequence[FileInfo], now: Sequence[FileInfo]) -> Iterator[tuple[str, str]]:
    """Compares two listings sorted by path, streaming."""
    both = merge(
        ((file, "is gone") for file in before), ((file, "is new") for file in now), key=lambda pair: pair[0].path
    )
    for path, pairs in groupby(both, key=lambda pair: pair[0].path):
        (file, difference), *others = pairs
        if not others:
            yield path, difference
        elif others[0][0] != file:
            yield path, "is another"


def take_times(
    spec: Spec, folder: Location, files: Listings, only: Sequence[str] = (), *, reads_all: bool = False
) -> Remembered | None:
    """Sets identity times by a version's inputs, and returns these, if known; `reads_all` compares every content.

    `only` lists the files of some spans.
    """
    remembered = Remembered.read(folder, by_span=spec.has_templates)
    if remembered is not None:
        with suppress(UserError, OSError):  # the plan says what is wrong
            files.take(remembered.times(list_groups(spec, files, only), files, reads_all=reads_all))
    return remembered
