"""The chunks of a job, in pages in the workspace; the job's graph contains only positions and the pages' digests.

A chunk may carry thousands of names, and a runner refuses a large graph (Dataflow: 10 MB).
"""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Self

from recordmill.pipeline.sources.batches import batches, pack, packed_bytes, unpack
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.versions.stores.base import OutputError, Store

FOLDER = "chunks"
PAGE_CHUNKS = 500  # 10 million chunks are 20,000 pages, and their bounds and digests take 0.5 MB of the graph
WRITERS = 8


@dataclass(frozen=True)
class ChunkPages:
    """Chunks by their positions, from 0."""

    workspace: Store
    digests: tuple[bytes, ...]
    """The digest of each page, its file's name: a worker unpickles only what the driver wrote."""
    bounds: tuple[int, ...]  # position of each page's first chunk and, last, the number of chunks

    @classmethod
    def write(cls, workspace: Store, chunks: Sequence[Chunk]) -> Self:
        """Writes missing pages: two jobs of a build read the same chunks. Raises: OSError, OutputError."""
        counts, pages = [0], dict[bytes, bytes]()
        for page in batches(chunks, packed_bytes, PAGE_CHUNKS):
            data = pack(page)
            counts.append(len(page))
            pages[_digest(data)] = data
        there = workspace.sizes(FOLDER)
        missing = {name: page for digest, page in pages.items() if (name := _name(digest)) not in there}
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(workspace.write, missing, missing.values()))
        return cls(workspace, tuple(pages), tuple(accumulate(counts)))

    def __len__(self) -> int:
        return self.bounds[-1]

    def read(self, position: int) -> Chunk:
        """Returns a chunk; the last pages are cached. Raises: OSError, OutputError: the page is gone or damaged."""
        page = bisect_right(self.bounds, position) - 1
        return _read(self.workspace, self.digests[page])[position - self.bounds[page]]


def _name(digest: bytes) -> str:
    return f"{FOLDER}/{digest.hex()}"


def _digest(page: bytes) -> bytes:
    return hashlib.blake2b(page, digest_size=16).digest()


@lru_cache(maxsize=2)
def _read(workspace: Store, digest: bytes) -> list[Chunk]:
    page, path = workspace.read(_name(digest)), f"{workspace.url}/{_name(digest)}"
    if page is None:
        raise FileNotFoundError(f"{path} is gone: another attempt at this build goes on with its work")
    if _digest(page) != digest:
        raise OutputError(f"{path} is not what the driver wrote: run the same command again")
    return list(unpack(page))
