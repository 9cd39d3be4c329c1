"""What must be known before the rows are read for good: a small pass over the same chunks, where a spec needs it.

Three things: the bounds of a split by classes (`worker.stratify`), the label's classes where a function of the user's
is to see the train split alone, and the words that a tokenizer is trained from. Each chunk leaves a file in the build's
folder; the driver adds them up in the chunks' order.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from recordmill.pipeline.build.analysis.exact_sums import Counts, add_counts, most_frequent
from recordmill.pipeline.build.analysis.tokenizer_training import count_words, train
from recordmill.pipeline.build.context.build_context import Work
from recordmill.pipeline.build.duplicates.decisions import leave_out
from recordmill.pipeline.build.images.read import pictures_of
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.build.worker.stratify import strata
from recordmill.pipeline.dataset.atomic_files import write_atomically
from recordmill.pipeline.dataset.key_hash import hash_keys
from recordmill.pipeline.sources.base import Chunk

FIRST = "first"
"""The folder of the passes' files; each pass has one of its own in it."""
STRATA, CLASSES, WORDS = "strata", "classes", "words"


class ClassReader:
    """Reads of a chunk the classes of a feature, and the split hashes of the keys."""

    def __init__(self, work: Work, feature: str, *, for_strata: bool = False) -> None:
        """With `for_strata`, a source whose rows all go to one split is left out: nothing of it is to be cut."""
        self._work = work
        self._feature = feature
        self._left_out = work.rows.source_splits if for_strata else ()
        self.what = STRATA if for_strata else CLASSES

    def read(self, chunk: Chunk) -> None:
        """Leaves a table of classes and hashes; a row with several classes has several."""
        tables = []
        left_out = bool(self._left_out and self._left_out[chunk.source])
        for rows in () if left_out else rows_of(self._work, chunk):
            hashes, _, _ = hash_keys(rows["@key"].to_pylist())
            classes = rows[self._feature].combine_chunks()
            if pa.types.is_list(classes.type):
                hashes = hashes[pc.list_parent_indices(classes).to_numpy()]
                classes = pc.list_flatten(classes)
            tables.append(pa.table({"class": classes, "hash": hashes}))
        leave(self._work, self.what, chunk, tables)


class WordReader:
    """Counts the words of a chunk's rows of the train split, for each tokenizer that is trained."""

    what = WORDS

    def __init__(self, work: Work) -> None:
        self._work = work

    def read(self, chunk: Chunk) -> None:
        """Leaves a table of the features that tokenizers are named after, words and counts."""
        trained = self._work.trained()
        counted: dict[str, Counts] = {owner: {} for owner in trained.values()}
        train_split = self._work.layout.splits.index("train")
        for rows in rows_of(self._work, chunk):
            chosen = rows.filter(pc.equal(rows["@split"], train_split))
            for name, owner in trained.items():
                found = count_words(chosen[name].combine_chunks(), self._work.features[name])
                add_counts(counted[owner], found.keys(), found.values())
        tables = [
            pa.table(
                {"feature": [name] * len(counts), "word": pa.array(counts, pa.binary()), "count": list(counts.values())}
            )
            for name, counts in counted.items()
            if counts
        ]
        leave(self._work, self.what, chunk, tables)


def with_strata(work: Work, chunks: Sequence[Chunk]) -> Work:
    """The work with the bounds of each class, of what `ClassReader` left."""
    tables = list(_tables(work, STRATA, chunks))
    ordered = pa.concat_tables(tables).sort_by("class") if tables else pa.table({"class": [], "hash": []})
    names, hashes = ordered["class"].to_numpy(), ordered["hash"].to_numpy()
    bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)] if len(names) else []
    classes = {names[start].decode(): hashes[start:end] for start, end in itertools.pairwise(bounds)}
    return replace(work, rows=replace(work.rows, strata=strata(classes, list(work.layout.weights.values()))))


def with_classes(work: Work, chunks: Sequence[Chunk], label: str) -> Work:
    """The work with the label's classes, of all splits, as those that the spec gives."""
    counts: Counts = {}
    for table in _tables(work, CLASSES, chunks):
        found = table["class"].value_counts()
        add_counts(counts, found.field("values").to_pylist(), found.field("counts").to_pylist())
    classes = tuple(word.decode() for _, word in most_frequent(counts, None, 1))
    return replace(work, features={**work.features, label: {**work.features[label], "classes": classes}})


def trained_models(work: Work, chunks: Sequence[Chunk]) -> dict[str, bytes]:
    """Trains the tokenizers of what `WordReader` left; gives them by the feature that each is named after.

    Raises:
        UserError: a tokenizer cannot be trained from these words.
    """
    counts: dict[str, Counts] = {owner: {} for owner in work.trained().values()}
    for table in _tables(work, WORDS, chunks):
        for owner, word, count in zip(*(column.to_pylist() for column in table.columns), strict=True):
            add_counts(counts[owner], [word], [count])
    return {owner: train(found, work.features[owner], owner) for owner, found in counts.items()}


def unread(work: Work, what: str, chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks that have not left their file yet: an earlier attempt may have read some."""
    return [chunk for chunk in chunks if not os.path.exists(_left_file(work, what, chunk))]


def rows_of(work: Work, chunk: Chunk) -> Iterator[pa.Table]:
    """A chunk's keyed rows, without those that the build leaves out."""
    read_picture = pictures_of(work).read
    form = work.rows
    for block in work.sources[chunk.source].read(chunk, work.files, form.columns, form.source_key):
        rows = key_rows(block, chunk, form, work.layout, read_picture)[0]
        yield rows if work.dropped is None else leave_out(work.dropped, rows, chunk.index).rows


def leave(work: Work, what: str, chunk: Chunk, tables: list[pa.Table]) -> None:
    """Writes the file of a chunk, one of a pass' own folder."""
    folder = os.path.join(work.path(FIRST), what)
    with suppress(FileExistsError):
        os.mkdir(folder)  # not with its parents: a late worker must not make an older attempt's folder again
    sink = pa.BufferOutputStream()
    pa.feather.write_feather(pa.concat_tables(tables) if tables else pa.table({}), sink, compression="lz4")
    write_atomically(_left_file(work, what, chunk), sink.getvalue())


def _tables(work: Work, what: str, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
    for chunk in chunks:
        table = pa.feather.read_table(_left_file(work, what, chunk))
        if table.num_rows:
            yield table


def left_files(work: Work, what: str, chunks: Sequence[Chunk]) -> list[str]:
    """The files of a pass, in the chunks' order."""
    return [_left_file(work, what, chunk) for chunk in chunks]


def _left_file(work: Work, what: str, chunk: Chunk) -> str:
    return os.path.join(work.path(FIRST), what, f"{chunk.index:06d}.feather")
