"""Every kind of tokenizer through tf.Transform: exported, loaded again, and the same as the graph alone."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf

from recordmill.pipeline.build.analysis.tokenizers import read_model, train
from recordmill.pipeline.build.summaries.words import VocabularyOptions
from recordmill.pipeline.spec.features.text import Text
from recordmill.transforms.contract.kinds.text import TextOptions
from recordmill.transforms.tensorflow import text
from recordmill.transforms.tensorflow.kind import Context, Statistics
from recordmill.transforms.tensorflow.tokenizers import clean, tokenize
from tests.looks import asset, graph_of
from tests.test_tokenizer_training import count_words

TEXTS = ["the cat sat", "The DOG sat, the cat ﬁts", "", "日本 🙂 مَرحبًا", "zebra"]
SHARED: dict[str, Any] = {"vocabulary": {"shared_with": "words"}, "oov_buckets": 3}
TABLES: dict[str, dict[str, Any]] = {
    "words": {"vocabulary": 3, "oov_buckets": 3},
    "shared": SHARED,
    "given": {"vocabulary": "words.txt", "end": True},
    "pairs": {"ngrams": 2, "minimum_count": 2, "case": "fold"},
    "letters": {"tokenizer": "characters", "vocabulary": 5, "max_length": 4, "keep_length": True},
}
ALONE: dict[str, dict[str, Any]] = {
    "hashed": {"hash_buckets": 9, "normalize": "nfkc"},
    "bytes": {"tokenizer": "bytes", "begin": True, "max_length": 6},
    "wordpiece": {"tokenizer": "wordpiece", "vocabulary": 60, "end": True},
    "unigram": {"tokenizer": "sentencepiece", "vocabulary": 60, "begin": True},
    "pairs_of_pieces": {"tokenizer": "sentencepiece", "vocabulary": 60, "model_type": "bpe"},
}


def options(given: dict[str, Any]) -> TextOptions:
    chosen = Text(kind="text", **given)
    plain = chosen.options()
    if chosen.needs_model:
        plain = read_model(train(count_words(pa.array(TEXTS), plain), plain), plain).complete(plain)
    return replace(plain, words=("zebra", "cat")) if given.get("vocabulary") == "words.txt" else plain


def _tokens(plain: TextOptions, texts: list[str]) -> list[bytes]:
    return tokenize(clean(tf.constant(texts), plain), plain).flat_values.numpy().tolist()


@pytest.mark.slow
def test_every_tokenizer(tmp_path: Path) -> None:
    features = {name: options(given) for name, given in (TABLES | ALONE).items()}
    counts = {name: Counter(_tokens(features[name], TEXTS[:4])) for name in TABLES}
    counts["words"].update(_tokens(features["words"], ["dog dog dog"] * 4))  # those of `shared`
    words = {
        name: VocabularyOptions.of(name, features[name]).words(counts[name]) for name in TABLES if name != "shared"
    }
    specs = {name: tf.TensorSpec([None], tf.string) for name in features}
    output = graph_of(features, specs, words, {}, tmp_path)
    stored = output.transform_features_layer()({name: tf.constant(TEXTS) for name in features})

    assert asset(output, "words.vocabulary.txt") == b"dog\nthe\nsat\n"
    assert not Path(output.transform_savedmodel_dir, "assets", "shared.vocabulary.txt").exists()
    assert stored["shared"].to_list() == stored["words"].to_list()
    assert stored["words"].to_list()[1][:4] == [5, 4, 6, 5]
    assert set(stored["words"].to_list()[3]) <= {1, 2, 3}
    assert stored["given"].to_list() == [[1, 4, 1, 2], [1, 1, 1, 1, 4, 1, 2], [2], [1, 1, 2], [3, 2]]
    assert asset(output, "pairs.vocabulary.txt") == b"the cat\n"
    assert stored["pairs"].to_list() == [[2, 1], [1, 1, 1, 2, 1], [], [1], []]
    assert stored["letters_length"].numpy().tolist() == [len("the cat sat"), 24, 0, 12, 5]
    for name in ALONE:
        column = tf.constant(TEXTS)
        alone = text.prepare(features[name], column, Context()).store(Statistics())
        assert stored[name].to_list() == alone[""].to_list(), name
