"""What the columns of some sources can be read as: tried on a sample, by the sources themselves.

So a guess is right by construction: what is counted here is what a build would read, and reject.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from recordmill.pipeline.init.columns import SourceColumns, source_columns
from recordmill.pipeline.init.sampling import PIECE_BYTES, SampledFiles, spread
from recordmill.pipeline.sources.base import Block, Chunk, Files, Source, SourceError
from recordmill.pipeline.sources.columns import Column, Columns

SAMPLED_ROWS = 1_000
SAMPLED_CHUNKS = 32


@dataclass(frozen=True)
class Reading:
    """A column as one type: what came of the sampled rows."""

    values: list[Any] = field(default_factory=list)
    """Those of the rows that have one, in their order."""
    missing: int = 0
    """How many rows lack it."""
    rejected: int = 0
    """How many rows hold something else."""
    of: str = "0 rows"
    """The rows in words: `1,000 sampled rows`."""
    is_all: bool = True
    """Whether there are no other rows."""

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return len(self.values) + self.missing + self.rejected

    @property
    def fit(self) -> float:
        """The share of the rows that could be read among those that do not lack it, 0..1; 0 where all lack it."""
        return len(self.values) / max(1, len(self.values) + self.rejected)

    @cached_property
    def distinct(self) -> dict[Any, int]:
        """How often each value stands there, the most frequent first, then in their order; lists by their values."""
        flat = [one for value in self.values for one in (value if isinstance(value, list) else [value])]
        counts = dict[Any, int]()
        for one in flat:
            counts[one] = counts.get(one, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


class Sample:
    """Some rows of sources that are alike: of the same format, with the same options."""

    def __init__(self, sources: Sequence[Source], files: Files, beside: Columns | None = None) -> None:
        """Takes the sources, and columns that are always read too, because others depend on them."""
        self.sources = tuple(sources)
        self.files = SampledFiles(files, self.sources[0])
        self.beside = beside or {}
        self.headers: dict[tuple[int, bytes], tuple[int, int] | str] = {}
        """What is known of pictures: by source and reference their size, or the reason of their reject."""
        self._read: dict[tuple[str, Column, int], Reading] = {}

    @cached_property
    def columns(self) -> SourceColumns:
        """The columns of all sources together.

        Raises:
            SourceError: a source cannot be read.
        """
        found = [source_columns(source, self.files) for source in self.sources]
        names = tuple(dict.fromkeys(name for one in found for name in one.names))
        differ = any(one.differ or set(one.names) != set(names) for one in found)
        return SourceColumns(names, found[0].of_path, differ)

    @property
    def names(self) -> Sequence[str]:
        """The columns' names."""
        return self.columns.names

    def read(self, name: str, column: Column, rows: int = SAMPLED_ROWS) -> Reading:
        """Reads a column of about so many rows; nothing where no row can be read so."""
        asked = (name, column, rows)
        if asked not in self._read:
            try:
                self._read[asked] = self._reading(name, column, rows)
            except SourceError:
                self._read[asked] = Reading()
        return self._read[asked]

    def _reading(self, name: str, column: Column, rows: int) -> Reading:
        taken = self.take({name: column, **self.beside}, (), rows)
        values = [value for _, block in taken.blocks for value in block.table[name].to_pylist()]
        rejected = sum(reject.column == name for _, block in taken.blocks for reject in block.rejects)
        held = [value for value in values if value is not None]
        return Reading(held, len(values) - len(held), rejected, taken.words(len(values) + rejected), taken.is_all)

    def take(self, columns: Columns, key: Sequence[str] | None = None, rows: int = SAMPLED_ROWS) -> "Taken":
        """Reads about so many rows, evenly spread over the sources; `key` is as `Source.read` takes it.

        Raises:
            SourceError: a source cannot be read, or not so.
            OSError: a file cannot be read any more.
        """
        chunks = [
            replace(chunk, source=at)
            for at, source in enumerate(self.sources)
            for chunk in source.plan(self.files, columns, PIECE_BYTES).chunks
        ]
        chosen = spread(chunks, SAMPLED_CHUNKS)
        limit, blocks, is_all = -(-rows // max(1, len(chosen))), list[tuple[Chunk, Block]](), len(chosen) == len(chunks)
        for chunk in chosen:
            left = limit
            for block in self.sources[chunk.source].read(chunk, self.files, columns, key):
                blocks.append((chunk, first_rows(block, left)))
                left -= _rows(block)
                if left < 0:
                    break
            is_all &= left >= 0
        return Taken(blocks, is_all and self.files.is_whole)


@dataclass(frozen=True)
class Taken:
    """Some rows of sources."""

    blocks: list[tuple[Chunk, Block]]
    """With the chunks that they are of, whose `source` is the source's place."""
    is_all: bool
    """Whether there are no others."""

    @property
    def rows(self) -> int:
        """How many rows there are, rejects included."""
        return sum(_rows(block) for _, block in self.blocks)

    def words(self, rows: int) -> str:
        """So many of the rows in words: `the 20 rows`, `1,000 sampled rows`."""
        if rows == 1:
            return "the only row" if self.is_all else "1 sampled row"
        return f"the {rows:,} rows" if self.is_all else f"{rows:,} sampled rows"


def first_rows(block: Block, limit: int) -> Block:
    """The first rows of a block, good and bad, by their positions."""
    if _rows(block) <= limit:
        return block
    good: list[int] = block.table["@position"].to_pylist()
    last = sorted([*good, *(reject.position for reject in block.rejects)])[limit]
    kept = sum(position < last for position in good)
    rejects = [reject for reject in block.rejects if reject.position < last]
    return replace(block, table=block.table.slice(0, kept), rejects=rejects)


def _rows(block: Block) -> int:
    return block.table.num_rows + len(block.rejects)
