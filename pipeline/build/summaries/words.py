"""Counted words, and the vocabularies, class names and tokenizers' models made from them.

A table has `feature` (which names a vocabulary, or a tokenizer), `word` and `count`. The choice of words follows from
the counts alone, not from any order.
"""

import heapq
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from recordmill.pipeline.build.analysis.tokenizers import train, training_words
from recordmill.pipeline.build.summaries.summary import (
    BUCKETS,
    Buckets,
    Result,
    Summary,
    add_up,
    by_feature,
    prepared,
    train_rows,
)
from recordmill.pipeline.dataset.arrow_tables import WORDS
from recordmill.pipeline.sources.faults import Reject
from recordmill.transforms.base.description import Learned

NO_WORD = b" "  # the only line of an empty vocabulary: TensorFlow refuses an empty file, and words are never blank
CANDIDATES = WORDS.append(pa.field("distinct", pa.int64()))


@dataclass(frozen=True)
class VocabularyOptions:
    """Chooses the words of a feature that get an id."""

    name: str
    top_k: int | None = None
    minimum_count: int = 1
    given: tuple[str, ...] | None = None  # the words in order, in place of counting
    kept: tuple[bytes, ...] = ()  # the first words, in this order, counted or not
    order: str = "frequency"

    @classmethod
    def of(cls, name: str, options: Any, learned: Learned) -> "VocabularyOptions":
        """Makes the options of a text, or of a feature with names as values."""
        if options.counts == "words":
            size = options.vocabulary if isinstance(options.vocabulary, int) else None
            return cls(name, size, options.minimum_count, learned.words)
        kept = tuple(name.encode() for name in learned.kept)
        return cls(name, options.max_classes, options.minimum_count, options.given_classes, kept, options.order)

    def words(self, counts: Mapping[bytes, int]) -> list[bytes]:
        """Returns the words that get an id, in the order of the ids, from all candidates; at least one."""
        if self.given is not None:
            return [word.encode() for word in self.given] or [NO_WORD]
        frequent = [word for _, word in most_frequent(counts, self.top_k, self.minimum_count)]
        return class_names(frequent, self.kept, self.top_k, self.order) or [NO_WORD]

    def candidates(self, counts: Mapping[bytes, int]) -> list[tuple[int, bytes]]:
        """Returns the (count, word) pairs, out of a part of all words, that may be in the whole vocabulary."""
        frequent = most_frequent(counts, self.top_k, self.minimum_count)
        return list(dict.fromkeys([*frequent, *((counts[word], word) for word in self.kept if word in counts)]))


def most_frequent(counts: Mapping[bytes, int], top_k: int | None, minimum_count: int) -> list[tuple[int, bytes]]:
    """Returns (count, word) pairs as `tft.vocabulary` does: most frequent first, then in descending byte order.

    Leaves out blank words and words with a line break.
    """
    words = (word for word, count in counts.items() if count >= minimum_count and word.strip())
    pairs = ((counts[word], word) for word in words if b"\n" not in word and b"\r" not in word)
    return sorted(pairs, reverse=True) if top_k is None else heapq.nlargest(top_k, pairs)


def class_names(frequent: Sequence[bytes], kept: Sequence[bytes], most: int | None, order: str) -> list[bytes]:
    """Returns the names of a category by id: those of the version before keep their ids, even if the data lost them.

    New names follow, up to `most` in all, out of `frequent`, the most frequent first, `alphabetical` or by `frequency`.
    """
    known = set(kept)
    new = [name for name in frequent if name not in known]
    new = new if most is None else new[: max(0, most - len(kept))]
    return [*kept, *(sorted(new) if order == "alphabetical" else new)]


def counted(feature: str, words: tf.Tensor) -> pa.Table:
    """Counts strings of any number, shape [words], for a feature."""
    distinct, _, counts = tf.unique_with_counts(words, out_idx=tf.int64)
    names = pa.array([feature]).take(pa.array(np.zeros(len(distinct), np.int64)))
    return pa.table([names, pa.array(distinct.numpy(), pa.binary()), pa.array(counts.numpy())], schema=WORDS)


class CountedWords(Summary[Result]):
    """Adds up the counts of words, in buckets by the words' checksums."""

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        return add_up(tables, ["feature", "word"], {"count": "sum"})

    def buckets(self, table: pa.Table) -> Buckets:
        return np.fromiter(map(zlib.crc32, table["word"].to_pylist()), np.int64, table.num_rows) % BUCKETS


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
        """The options of each vocabulary, by the feature that names it."""
        features, learned = self.planned.features.items(), self.planned.learned
        owners = {name: each for name, each in features if each.has_vocabulary and each.owner(name) == name}
        return {name: VocabularyOptions.of(name, each, learned[name]) for name, each in owners.items()}

    @cached_property
    def features(self) -> list[str]:
        """The features with counted words: their words are not all given, and not hashed."""
        features = self.planned.features
        counted = [name for name, options in features.items() if self.name in options.learns]
        return sorted(counted, key=lambda name: features[name].counts == "names")

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        train, tables = train_rows(self.planned, rows, self.features), [WORDS.empty_table()]
        for name in self.features:
            options = self.planned.features[name]
            column = rows[name] if name == self.planned.schema.label else train[name]
            tokens = prepared(options, column).tokens
            assert tokens is not None  # noqa: S101 - all counted features have them
            tables.append(counted(options.owner(name), tokens()))
        return pa.concat_tables(tables)

    def reduce(self, table: pa.Table) -> pa.Table:
        """Keeps the words that a vocabulary may have, and for each feature a row of totals, without a word."""
        parts = [CANDIDATES.empty_table()]
        for feature, own in by_feature(table):
            total = {"feature": feature, "word": None, "count": pc.sum(own["count"]).as_py(), "distinct": own.num_rows}
            candidates = pa.array([word for _, word in self.options[feature].candidates(counts_of(own))], pa.binary())
            chosen = own.filter(pc.is_in(own["word"], candidates))
            chosen = chosen.append_column("distinct", pa.nulls(chosen.num_rows, pa.int64()))
            parts += [pa.Table.from_pylist([total], CANDIDATES), chosen]
        return pa.concat_tables(parts)

    def result(self, tables: Sequence[pa.Table]) -> dict[str, Vocabulary]:
        rows = dict(by_feature(pa.concat_tables([CANDIDATES.empty_table(), *tables])))
        found, none = dict[str, Vocabulary](), CANDIDATES.empty_table()
        for name, options in self.options.items():
            own = rows.get(name, none)
            totals, counts = own.filter(pc.is_null(own["word"])), counts_of(own.filter(pc.is_valid(own["word"])))
            words = options.words(counts)
            statistics = {
                "words": len(words),
                "distinct": sum(totals["distinct"].to_pylist()),
                "tokens": sum(totals["count"].to_pylist()),
                "known_tokens": sum(counts.get(word, 0) for word in words) if options.given is None else None,
            }
            gone = [word.decode() for word in options.kept if word not in counts]
            if gone and options.given is None:  # an empty list would make of equal rows another version
                statistics["gone"] = gone
            found[name] = Vocabulary(words, statistics)
        return found


class TokenizerWords(CountedWords[dict[str, bytes]]):
    """The models of tokenizers, trained from the words of the train split."""

    name = "tokenizers"

    @cached_property
    def features(self) -> Mapping[str, str]:
        """Maps the features with a trained tokenizer to the feature that names it."""
        return self.planned.trained()

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        train, texts = train_rows(self.planned, rows, self.features), self.planned.texts()
        tables = [WORDS.empty_table()]
        for name, owner in self.features.items():
            tables.append(counted(owner, training_words(train[name].combine_chunks(), texts[name])))
        return pa.concat_tables(tables)

    def reduce(self, table: pa.Table) -> pa.Table:
        """Keeps a model's training words; if all are too rare, keeps one, to show that words exist."""
        parts, texts = [WORDS.empty_table()], self.planned.texts()
        for owner, own in by_feature(table):
            frequent = own.filter(pc.greater_equal(own["count"], texts[owner].minimum_count))
            parts.append(frequent if frequent.num_rows else own.slice(0, 1))
        return pa.concat_tables(parts)

    def result(self, tables: Sequence[pa.Table]) -> dict[str, bytes]:
        """Trains; returns the models by the feature that names each. Raises: UserError: as `train`."""
        rows = dict(by_feature(pa.concat_tables([WORDS.empty_table(), *tables])))
        texts, none = self.planned.texts(), WORDS.empty_table()
        owners = dict.fromkeys(self.features.values())
        return {owner: train(counts_of(rows.get(owner, none)), texts[owner], owner) for owner in owners}
