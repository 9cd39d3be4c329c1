"""Checks that the inputs are unchanged: plans the sources again and compares the digests.

Only names, sizes and times of change count, as in the build's key. `Listings` remembers the files, to name the changes.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import BinaryIO

from recordmill.pipeline.build.plan import BuildPlan, inputs_digest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.base import FileInfo, Files, SourceError

SHOWN = 3


class InputsChangedError(UserError):
    """The inputs changed since the build began; the message names some."""


class Listings:
    """Files that remember their first listings.

    >>> files = Listings(BeamFiles())     # doctest: +SKIP
    >>> plan = make_plan(spec, files)     # doctest: +SKIP
    >>> check_unchanged(plan, files)      # doctest: +SKIP
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._listed: dict[str, list[FileInfo]] = {}

    def match(self, pattern: str) -> list[FileInfo]:
        """Lists the files that a glob matches."""
        listed = self.files.match(pattern)
        self._listed.setdefault(pattern, listed)
        return listed

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder."""
        return self.files.is_folder(path)

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading."""
        return self.files.open(path)

    def has(self, path: str) -> bool:
        """Whether a file was listed."""
        return path in self._paths

    @cached_property
    def _paths(self) -> set[str]:
        return {file.path for listed in self._listed.values() for file in listed}

    def changes(self) -> Iterator[str]:
        """Lists everything again; yields a line for each file that differs, or several."""
        for pattern, before in self._listed.items():
            try:
                now = {file.path: file for file in self.files.match(pattern)}
            except OSError:
                now = {}
            for file in before:
                there = now.pop(file.path, None)
                if there != file:
                    yield f"{file.path} {'is gone' if there is None else 'is another'}"
            yield from (f"{path} is new" for path in now)


def check_unchanged(plan: BuildPlan, files: Listings) -> None:
    """Checks that a build of these inputs would still be the same.

    Raises:
        InputsChangedError: it would differ.
    """
    try:
        now = inputs_digest(plan.spec, files.files)
    except SourceError:
        now = ""
    if now == plan.inputs_sha256:
        return
    changed = sorted(set(files.changes()))
    if now or changed:  # otherwise the source cannot be planned for another reason
        more = f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        named = f" ({', '.join(changed[:SHOWN])}{more})" if changed else ""
        raise InputsChangedError(
            f"the inputs changed while they were read{named}: build again when nothing writes to them"
        )
