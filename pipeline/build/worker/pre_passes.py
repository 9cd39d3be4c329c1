"""Passes before the job: exact summaries of the rows, where a spec must know something of its data first.

A pass makes a table of each block of rows, adds up a chunk's tables, and writes them as one file; its rename commits
the chunk, and a later attempt keeps it. The driver makes the result of all files, in the chunks' order.
`worker.content_pass` is a pass, too.
"""

import os
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.analysis.exact_sums import class_names, most_frequent
from recordmill.pipeline.build.analysis.tokenizer_training import count_words, train
from recordmill.pipeline.build.context.arrow_files import read_table, write_table
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.rejects import write_rejects
from recordmill.pipeline.build.context.row_schema import RowDecisions, Strata
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.dataset.key_hash import Hashes, hash_keys
from recordmill.pipeline.sources.base import Chunk
from recordmill.pipeline.sources.rejects import Reject

FIRST = "first"
"""The folder of the passes' files; each pass has one of its own in it."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class PrePass(ABC, Generic[Result]):
    """One look at all rows."""

    name: ClassVar[str]
    planned: PlannedBuild
    decisions: RowDecisions
    """The decisions of the passes before this one."""

    @abstractmethod
    def summarize(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Makes the table of a block's keyed rows; adds the rejects that it finds."""

    def add(self, tables: list[pa.Table]) -> pa.Table:
        """Adds up the tables of a chunk, of which there is at least one."""
        return pa.concat_tables(tables)

    @abstractmethod
    def result(self, chunks: Sequence[Chunk]) -> Result:
        """Makes the result of all chunks' files, in the driver."""

    def sees(self, chunk: Chunk) -> bool:
        """Whether the rows of a chunk count."""
        return True

    def read(self, chunk: Chunk) -> None:
        """Writes a chunk's file, in a worker.

        The rejects of rows whose file cannot be read lie beside it: the next attempt looks whether they are back.
        """
        tables, rejects = list[pa.Table](), list[Reject]()
        for block in keyed_blocks(self.planned, self.decisions, chunk) if self.sees(chunk) else ():
            rejects += block.rejects
            tables.append(self.summarize(block.rows, rejects))
        path = self.file(chunk)
        with suppress(FileExistsError):
            os.mkdir(os.path.dirname(path))  # not its parents: a late worker must not make an older attempt's folder
        write_rejects(os.path.dirname(path), str(chunk.index), [reject for reject in rejects if reject.path])
        write_table(path, self.add(tables) if tables else pa.table({}))

    def file(self, chunk: Chunk) -> str:
        """Gives the path of a chunk's file."""
        return os.path.join(self.planned.path(FIRST), self.name, f"{chunk.index:06d}.feather")

    def unread(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Gives the chunks without a file yet: an earlier attempt may have read some."""
        return [chunk for chunk in chunks if not os.path.exists(self.file(chunk))]

    def tables(self, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
        """Reads the chunks' files back, without those that have no rows."""
        return (table for chunk in chunks if (table := read_table(self.file(chunk))).num_rows)


@dataclass(frozen=True)
class StrataPass(PrePass[Strata]):
    """Cuts each class by the shares; the rows of a source with a split of its own do not count."""

    name = "strata"
    feature: str

    def sees(self, chunk: Chunk) -> bool:
        """Whether the spec gives the source no split."""
        splits = self.planned.schema.source_splits
        return not splits or splits[chunk.source] is None

    def summarize(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Gives the classes and split hashes; a row with several classes has several."""
        hashes, _, _ = hash_keys(rows["@key"].to_pylist())
        classes = rows[self.feature].combine_chunks()
        if pa.types.is_list(classes.type):
            hashes = hashes[pc.list_parent_indices(classes).to_numpy()]
            classes = pc.list_flatten(classes)
        return pa.table({"class": classes, "hash": hashes})

    def result(self, chunks: Sequence[Chunk]) -> Strata:
        """Gives the bounds of each class."""
        tables = list(self.tables(chunks))
        ordered = pa.concat_tables(tables).sort_by("class") if tables else pa.table({"class": [], "hash": []})
        names, hashes = ordered["class"].to_numpy(), ordered["hash"].to_numpy()
        cuts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)] if len(names) else []
        weights = list(self.planned.layout.weights.values())
        return {names[start].decode(): bounds_of(hashes[start:end], weights) for start, end in pairwise(cuts)}


def bounds_of(hashes: Hashes, weights: Sequence[float]) -> list[int]:
    """Gives the upper bounds of the splits' ranges of hashes for one class, exact to the row; the last is 2**64.

    A row's split follows from the keys of its class alone. The bounds take the place of `key_hash.split_bounds`.

    Args:
        hashes: the split hashes of the class' keys, in any order, with repeats.
        weights: the splits' shares, in order.
    """
    ordered = np.unique(hashes)
    shares = [round(weight * 1_000_000) for weight in weights]  # integers: exact on every machine
    counts = [(2 * len(ordered) * cumulated + sum(shares)) // (2 * sum(shares)) for cumulated in accumulate(shares)]
    return [int(ordered[count]) if count < len(ordered) else 1 << 64 for count in counts]


class CountPass(PrePass[Result]):
    """Counts the words of features: a table of `feature`, `word` and `count`."""

    def add(self, tables: list[pa.Table]) -> pa.Table:
        """Adds up equal words."""
        grouped = pa.concat_tables(tables).group_by(["feature", "word"]).aggregate([("count", "sum")])
        return grouped.select(["feature", "word", "count_sum"]).rename_columns(["feature", "word", "count"])

    def counts(self, chunks: Sequence[Chunk]) -> defaultdict[str, Counter[bytes]]:
        """Adds up all chunks, by feature."""
        total: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
        for table in self.tables(chunks):
            for feature, word, count in zip(*(column.to_pylist() for column in table.columns), strict=True):
                total[feature][word] += count
        return total


class ClassPass(CountPass[tuple[str, ...]]):
    """Finds the label's classes in all splits, by id."""

    name = "classes"

    def summarize(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Counts the classes."""
        label = self.planned.schema.label or ""
        values = pc.list_flatten(rows[label]) if pa.types.is_list(rows[label].type) else rows[label]
        counts = values.value_counts()
        return _counted(label, counts.field("values"), counts.field("counts"))

    def result(self, chunks: Sequence[Chunk]) -> tuple[str, ...]:
        """Gives the classes."""
        counts, label = self.counts(chunks)[self.planned.schema.label or ""], self.planned.label_names()
        frequent = [word for _, word in most_frequent(counts, None, 1)]
        kept, order = ([name.encode() for name in label.kept], label.order) if label else ([], "alphabetical")
        return tuple(word.decode() for word in class_names(frequent, kept, None, order))


class WordPass(CountPass[dict[str, bytes]]):
    """Trains tokenizers from the words of the train split."""

    name = "words"

    def summarize(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Counts the words, by the features that tokenizers are named after."""
        chosen = rows.filter(pc.equal(rows["@split"], self.planned.layout.splits.index("train")))
        tables = []
        for name, owner in self.planned.trained().items():
            counts = count_words(chosen[name].combine_chunks(), self.planned.texts()[name])
            words = pa.array(counts, pa.binary()), pa.array(list(counts.values()), pa.int64())
            tables.append(_counted(owner, *words))
        return pa.concat_tables(tables)

    def result(self, chunks: Sequence[Chunk]) -> dict[str, bytes]:
        """Trains; gives the models by the feature that each is named after. Raises: UserError: as `train`."""
        counts, texts = self.counts(chunks), self.planned.texts()
        return {
            owner: train(counts[owner], texts[owner], owner) for owner in dict.fromkeys(self.planned.trained().values())
        }


def _counted(feature: str, words: pa.Array, counts: pa.Array) -> pa.Table:
    return pa.table({"feature": pa.array([feature] * len(words), pa.string()), "word": words, "count": counts})
