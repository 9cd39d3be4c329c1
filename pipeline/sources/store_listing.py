"""Lists objects of s3:// and gs:// by the stores' own clients: without Beam, and with tags that follow the content.

>>> [(file.path, file.tag) for file in ListedByStore(LocalFiles()).match("s3://bucket/rows/*.jsonl")]  # doctest: +SKIP
[('s3://bucket/rows/a.jsonl', '"99914b932bd37a50b983c5e7c90ae93b"')]
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

from recordmill.pipeline.sources.base import FileInfo, Files
from recordmill.pipeline.sources.file_list import FileList
from recordmill.pipeline.sources.globs import WILDCARD, glob_pattern, is_glob, literal_prefix
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_bucket

SCHEMES = ("s3://", "gs://")


class ListedByStore:
    """Files whose listings of s3:// and gs:// come from the stores' clients; all else is as the other files give it.

    A prefix is listed once, for all patterns below it. Credentials and endpoints are those of the environment; where a
    client cannot list with them, the other files list.
    """

    def __init__(self, files: Files) -> None:
        """Takes the files that list other paths, and open all."""
        self._files = files
        self._objects: dict[str, list[FileInfo] | None] = {}

    def again(self) -> "ListedByStore":
        """Gives the files as they are now."""
        return ListedByStore(self._files)

    def match(self, pattern: str) -> Sequence[FileInfo]:
        """Lists the files that a glob matches, sorted by path. Raises: OSError: they cannot be listed."""
        objects = self._below(WILDCARD.split(literal_prefix(pattern))[0]) if pattern.startswith(SCHEMES) else None
        if objects is None:
            return self._files.match(pattern)
        matches = glob_pattern(pattern).fullmatch
        return FileList(file for file in objects if matches(file.path))

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder; for a URL, whether an object lies below it."""
        is_listed = path.startswith(SCHEMES) and not is_glob(path)
        objects = self._below(path.rstrip("/") + "/") if is_listed else None
        return self._files.is_folder(path) if objects is None else bool(objects)

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading. Raises: OSError: it is missing or unreadable."""
        return self._files.open(path)

    def _below(self, prefix: str) -> list[FileInfo] | None:
        """The objects whose URLs begin with a prefix, sorted, but those that stand for folders; None if refused."""
        if prefix not in self._objects:
            scheme, _, rest = prefix.partition("://")
            bucket, _, key = rest.partition("/")
            self._objects[prefix] = None
            with suppress(OutputError):
                listed = sorted(open_bucket(f"{scheme}://{bucket}").listed(key).items())
                self._objects[prefix] = [
                    FileInfo(f"{scheme}://{bucket}/{name}", found.bytes, 0.0, found.tag)
                    for name, found in listed
                    if not name.endswith("/")
                ]
        return self._objects[prefix]
