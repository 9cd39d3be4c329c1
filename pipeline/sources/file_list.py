"""A list of files that stays small in memory."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from recordmill.pipeline.sources.base import FileInfo
from recordmill.pipeline.sources.packed import pack, unpack

BLOCK = 4096  # files that are packed together


class FileList(Sequence[FileInfo]):
    """Files, packed: about 20 bytes each, where a list of `FileInfo` takes 250. Made to be iterated over.

    >>> [file.path for file in FileList([FileInfo("a.txt", 3, 0.0), FileInfo("b.txt", 5, 0.0)])]
    ['a.txt', 'b.txt']
    """

    def __init__(self, files: Iterable[FileInfo] = ()) -> None:
        self._blocks, self._rest = list[bytes](), list[FileInfo]()
        for file in files:
            self.append(file)

    def append(self, file: FileInfo) -> None:
        """Adds a file at the end."""
        self._rest.append(file)
        if len(self._rest) == BLOCK:
            self._blocks.append(pack(list(zip(*self._rest, strict=True))))  # by columns, which compress better
            self._rest = []

    def __len__(self) -> int:
        return BLOCK * len(self._blocks) + len(self._rest)

    def __iter__(self) -> Iterator[FileInfo]:
        return chain(chain.from_iterable(map(_files, self._blocks)), self._rest)

    @overload
    def __getitem__(self, index: int) -> FileInfo: ...
    @overload
    def __getitem__(self, index: slice) -> list[FileInfo]: ...
    def __getitem__(self, index: int | slice) -> FileInfo | list[FileInfo]:
        """Gives one file, which unpacks its block, or some of them, which unpacks all."""
        if isinstance(index, slice):
            return list(self)[index]
        block, row = divmod(range(len(self))[index], BLOCK)
        return _files(self._blocks[block])[row] if block < len(self._blocks) else self._rest[row]


def _files(block: bytes) -> list[FileInfo]:
    return list(map(FileInfo, *unpack(block)))
