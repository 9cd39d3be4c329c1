"""Counted words: of vocabularies and categories, and of the texts that tokenizers are trained from.

A table has `feature` (the one that a vocabulary, or a tokenizer, is named after), `word` and `count`.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from recordmill.pipeline.build.analysis.tokenizer_training import train, training_words
from recordmill.pipeline.build.analysis.vocabularies import VocabularyOptions
from recordmill.pipeline.build.summaries.base import BUCKETS, Buckets, Result, Summary, add_up
from recordmill.pipeline.build.summaries.learned import prepared, train_rows
from recordmill.pipeline.dataset.arrow_tables import WORDS
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.text import TextOptions, vocabulary_owner

CANDIDATES = WORDS.append(pa.field("distinct", pa.int64()))


def counted(feature: str, words: tf.Tensor) -> pa.Table:
    """Counts strings of any number, shape [words], for a feature."""
    distinct, _, counts = tf.unique_with_counts(words, out_idx=tf.int64)
    names = pa.array([feature]).take(pa.array(np.zeros(len(distinct), np.int64)))
    columns = [names, pa.array(distinct.numpy(), pa.binary()), pa.array(counts.numpy())]
    return pa.table(columns, schema=WORDS)


class CountedWords(Summary[Result]):
    """Adds up the counts of words, in buckets by the words' checksums."""

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up equal words of a feature."""
        return add_up(tables, ["feature", "word"], {"count": "sum"})

    def buckets(self, table: pa.Table) -> Buckets:
        """Spreads the words."""
        return np.fromiter(map(zlib.crc32, table["word"].to_pylist()), np.int64, table.num_rows) % BUCKETS


def by_feature(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yields each feature that has rows, with them."""
    for feature in table["feature"].unique().to_pylist():
        yield feature, table.filter(pc.equal(table["feature"], feature))


def counts_of(table: pa.Table) -> dict[bytes, int]:
    """Returns the counts of one feature's words."""
    return dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))


class Vocabulary(NamedTuple):
    """The words that get an id, in the order of the ids, and the statistics of all words."""

    words: list[bytes]
    statistics: dict[str, Any]


class Vocabularies(CountedWords[dict[str, Vocabulary]]):
    """The vocabularies of texts and categories, of the train split; the label's names of all splits."""

    name = "vocabularies"

    @cached_property
    def options(self) -> Mapping[str, VocabularyOptions]:
        """The options of each vocabulary, by the feature that it is named after."""
        return {
            name: VocabularyOptions.of(name, options)
            for name, options in self.planned.features.items()
            if isinstance(options, TextOptions | NameOptions)
            and options.has_vocabulary
            and vocabulary_owner(name, options) == name
        }

    @property
    def is_needed(self) -> bool:
        """Whether words are counted: neither are all given, nor hashed."""
        return bool(self.counted)

    @cached_property
    def counted(self) -> list[str]:
        """The features whose words are counted."""
        features = self.planned.features.items()
        texts = [name for name, options in features if isinstance(options, TextOptions) and options.counts_words]
        return texts + [name for name, options in features if isinstance(options, NameOptions) and options.counts_names]

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Counts the words as the graph cuts them."""
        train, tables = train_rows(self.planned, rows, self.counted), [WORDS.empty_table()]
        for name in self.counted:
            options = self.planned.features[name]
            column = rows[name] if name == self.planned.schema.label else train[name]
            tokens = prepared(options, column).tokens
            assert tokens is not None  # noqa: S101 - as all that are counted have
            tables.append(counted(vocabulary_owner(name, options), tokens()))
        return pa.concat_tables(tables)

    def reduce(self, table: pa.Table) -> pa.Table:
        """Keeps the words that may be in a vocabulary, and for each feature a row without a word: how many there are.

        The `count` of that row is that of all words, its `distinct` the number of different ones.
        """
        parts = [CANDIDATES.empty_table()]
        for feature, own in by_feature(table):
            total = {"feature": feature, "word": None, "count": pc.sum(own["count"]).as_py(), "distinct": own.num_rows}
            candidates = pa.array([word for _, word in self.options[feature].candidates(counts_of(own))], pa.binary())
            chosen = own.filter(pc.is_in(own["word"], candidates))
            chosen = chosen.append_column("distinct", pa.nulls(chosen.num_rows, pa.int64()))
            parts += [pa.Table.from_pylist([total], CANDIDATES), chosen]
        return pa.concat_tables(parts)

    def result(self, tables: Sequence[pa.Table]) -> dict[str, Vocabulary]:
        """Returns every vocabulary."""
        rows = dict(by_feature(pa.concat_tables([CANDIDATES.empty_table(), *tables])))
        none = CANDIDATES.empty_table()
        return {name: _vocabulary(options, rows.get(name, none)) for name, options in self.options.items()}


def _vocabulary(options: VocabularyOptions, rows: pa.Table) -> Vocabulary:
    counts = counts_of(rows.filter(pc.is_valid(rows["word"])))
    totals = rows.filter(pc.is_null(rows["word"]))
    words = options.words(counts)
    statistics = {
        "words": len(words),
        "distinct": sum(totals["distinct"].to_pylist()),
        "tokens": sum(totals["count"].to_pylist()),
        "known_tokens": sum(counts.get(word, 0) for word in words) if options.given is None else None,
    }
    if options.kept and options.given is None:
        statistics["gone"] = [word.decode() for word in options.kept if word not in counts]
    return Vocabulary(words, statistics)


class TokenizerWords(CountedWords[dict[str, bytes]]):
    """The models of tokenizers that are trained from the words of the train split."""

    name = "tokenizers"

    @property
    def is_needed(self) -> bool:
        """Whether a tokenizer is trained."""
        return bool(self.planned.trained())

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Counts the words that a model learns from."""
        train, texts = train_rows(self.planned, rows, self.planned.trained()), self.planned.texts()
        return pa.concat_tables(
            [
                WORDS.empty_table(),
                *(
                    counted(owner, training_words(train[name].combine_chunks(), texts[name]))
                    for name, owner in self.planned.trained().items()
                ),
            ]
        )

    def reduce(self, table: pa.Table) -> pa.Table:
        """Keeps the words that a model learns from; one that is too rare where there are no others: there are words."""
        parts, texts = [WORDS.empty_table()], self.planned.texts()
        for owner, own in by_feature(table):
            frequent = own.filter(pc.greater_equal(own["count"], texts[owner].minimum_count))
            parts.append(frequent if frequent.num_rows else own.slice(0, 1))
        return pa.concat_tables(parts)

    def result(self, tables: Sequence[pa.Table]) -> dict[str, bytes]:
        """Trains; returns the models by the feature that each is named after. Raises: UserError: as `train`."""
        rows = dict(by_feature(pa.concat_tables([WORDS.empty_table(), *tables])))
        texts, none = self.planned.texts(), WORDS.empty_table()
        owners = dict.fromkeys(self.planned.trained().values())
        return {owner: train(counts_of(rows.get(owner, none)), texts[owner], owner) for owner in owners}
