"""Passes before the job: small runs over the same chunks, where a spec must know something of the data first.

Three of them: the bounds of a split by classes (`worker.stratify`), the label's classes where a function of the user's
is to see the train split alone, and the words that a tokenizer is trained from. Each chunk writes a file into the
build's folder; the driver adds them up in the chunks' order. `worker.content_pass` is the fourth.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from recordmill.pipeline.build.analysis.exact_sums import Counts, add_counts, class_names, most_frequent
from recordmill.pipeline.build.analysis.tokenizer_training import count_words, train
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.row_schema import RowDecisions, Strata
from recordmill.pipeline.build.duplicates.decisions import leave_out
from recordmill.pipeline.build.images.read import image_reader
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.build.worker.stratify import strata
from recordmill.pipeline.dataset.atomic_files import write_atomically
from recordmill.pipeline.dataset.key_hash import hash_keys
from recordmill.pipeline.sources.base import Chunk

FIRST = "first"
"""The folder of the passes' files; each pass has one of its own in it."""
STRATA, CLASSES, WORDS = "strata", "classes", "words"


class ClassReader:
    """Reads a feature's classes and the keys' split hashes."""

    def __init__(
        self, planned: PlannedBuild, decisions: RowDecisions, feature: str, *, for_strata: bool = False
    ) -> None:
        """With `for_strata`, a source whose rows all go to one split is left out: its rows are not to be cut."""
        self._planned, self._decisions, self._feature = planned, decisions, feature
        self._left_out = planned.schema.source_splits if for_strata else ()
        self.name = STRATA if for_strata else CLASSES

    def read(self, chunk: Chunk) -> None:
        """Writes a chunk's table of classes and hashes; a row with several classes has several."""
        tables = []
        left_out = bool(self._left_out and self._left_out[chunk.source])
        for rows in () if left_out else rows_of(self._planned, self._decisions, chunk):
            hashes, _, _ = hash_keys(rows["@key"].to_pylist())
            classes = rows[self._feature].combine_chunks()
            if pa.types.is_list(classes.type):
                hashes = hashes[pc.list_parent_indices(classes).to_numpy()]
                classes = pc.list_flatten(classes)
            tables.append(pa.table({"class": classes, "hash": hashes}))
        write_pass_result(self._planned, self.name, chunk, tables)


class WordReader:
    """Counts the words of the train split's rows, for each tokenizer that is trained."""

    name = WORDS

    def __init__(self, planned: PlannedBuild, decisions: RowDecisions) -> None:
        self._planned, self._decisions = planned, decisions

    def read(self, chunk: Chunk) -> None:
        """Writes a chunk's table of words and counts, with the features that tokenizers are named after."""
        trained = self._planned.trained()
        counted: dict[str, Counts] = {owner: {} for owner in trained.values()}
        train_split = self._planned.layout.splits.index("train")
        for rows in rows_of(self._planned, self._decisions, chunk):
            chosen = rows.filter(pc.equal(rows["@split"], train_split))
            for name, owner in trained.items():
                counts = count_words(chosen[name].combine_chunks(), self._planned.texts()[name])
                add_counts(counted[owner], counts.keys(), counts.values())
        tables = [
            pa.table(
                {"feature": [name] * len(counts), "word": pa.array(counts, pa.binary()), "count": list(counts.values())}
            )
            for name, counts in counted.items()
            if counts
        ]
        write_pass_result(self._planned, self.name, chunk, tables)


def find_strata(planned: PlannedBuild, chunks: Sequence[Chunk]) -> Strata:
    """Gives the bounds of each class, from the files of `ClassReader`."""
    tables = list(_tables(planned, STRATA, chunks))
    ordered = pa.concat_tables(tables).sort_by("class") if tables else pa.table({"class": [], "hash": []})
    names, hashes = ordered["class"].to_numpy(), ordered["hash"].to_numpy()
    bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)] if len(names) else []
    classes = {names[start].decode(): hashes[start:end] for start, end in itertools.pairwise(bounds)}
    return strata(classes, list(planned.layout.weights.values()))


def find_classes(planned: PlannedBuild, chunks: Sequence[Chunk]) -> tuple[str, ...]:
    """Gives the label's classes in all splits by id, from the files of `ClassReader`."""
    counts: Counts = {}
    for table in _tables(planned, CLASSES, chunks):
        values = table["class"].value_counts()
        add_counts(counts, values.field("values").to_pylist(), values.field("counts").to_pylist())
    frequent, label = [word for _, word in most_frequent(counts, None, 1)], planned.label_names()
    kept, order = ([name.encode() for name in label.kept], label.order) if label else ([], "alphabetical")
    return tuple(word.decode() for word in class_names(frequent, kept, None, order))


def train_models(planned: PlannedBuild, chunks: Sequence[Chunk]) -> dict[str, bytes]:
    """Trains tokenizers from the files of `WordReader`; gives them by the feature that each is named after.

    Raises:
        UserError: a tokenizer cannot be trained from these words.
    """
    counts: dict[str, Counts] = {owner: {} for owner in planned.trained().values()}
    for table in _tables(planned, WORDS, chunks):
        for owner, word, count in zip(*(column.to_pylist() for column in table.columns), strict=True):
            add_counts(counts[owner], [word], [count])
    return {owner: train(words, planned.texts()[owner], owner) for owner, words in counts.items()}


def unread(planned: PlannedBuild, name: str, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Gives the chunks without a file of this pass yet: an earlier attempt may have read some."""
    return [chunk for chunk in chunks if not os.path.exists(_pass_result(planned, name, chunk))]


def rows_of(
    planned: PlannedBuild, decisions: RowDecisions, chunk: Chunk, *, with_units: bool = False
) -> Iterator[pa.Table]:
    """Gives a chunk's keyed rows, without those that the build leaves out."""
    read_image = image_reader(planned).read
    schema, layout = planned.schema, planned.layout
    for block in planned.sources[chunk.source].read(chunk, planned.files, schema.columns, schema.source_key):
        rows, _ = key_rows(block, chunk, schema, layout, read_image, decisions, with_units=with_units)
        yield rows if decisions.dropped is None else leave_out(decisions.dropped, rows, chunk.index).rows


def write_pass_result(planned: PlannedBuild, name: str, chunk: Chunk, tables: list[pa.Table]) -> None:
    """Writes a chunk's file into the folder of a pass."""
    folder = os.path.join(planned.path(FIRST), name)
    with suppress(FileExistsError):
        os.mkdir(folder)  # not with its parents: a late worker must not make an older attempt's folder again
    sink = pa.BufferOutputStream()
    pa.feather.write_feather(pa.concat_tables(tables) if tables else pa.table({}), sink, compression="lz4")
    write_atomically(_pass_result(planned, name, chunk), sink.getvalue())


def pass_result_files(planned: PlannedBuild, name: str, chunks: Sequence[Chunk]) -> list[str]:
    """Gives the paths of a pass' files, in the chunks' order."""
    return [_pass_result(planned, name, chunk) for chunk in chunks]


def _tables(planned: PlannedBuild, name: str, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
    for path in pass_result_files(planned, name, chunks):
        table = pa.feather.read_table(path)
        if table.num_rows:
            yield table


def _pass_result(planned: PlannedBuild, name: str, chunk: Chunk) -> str:
    return os.path.join(planned.path(FIRST), name, f"{chunk.index:06d}.feather")
