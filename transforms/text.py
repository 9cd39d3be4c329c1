r"""Text: lower case, words, ids; padded when it is read.

Words are runs of letters, marks, digits and underscores (Unicode categories L, M and N), as in Python's `\w+` with the
marks that Indic and Arabic scripts write their vowels with.
"""

import tensorflow as tf

from transforms.kind import Found, Options, Prepared

NO_WORD = r"[^\p{L}\p{M}\p{N}_]+"


def words(text: tf.Tensor) -> tf.RaggedTensor:
    """Splits UTF-8 texts, shape [rows], into their words in lower case; an empty text gives an empty row."""
    lower = tf.strings.lower(text, encoding="utf-8")
    return tf.strings.split(tf.strings.regex_replace(lower, NO_WORD, " "))


def prepare(options: Options, column: tf.Tensor, train: tf.Tensor) -> Prepared:
    """Counts the words of the train split (other rows come empty); stores int64 ids, ragged, cut at `max_length`."""
    tokens = words(column)

    def store(found: Found) -> tf.RaggedTensor:
        assert found.lookup is not None  # noqa: S101 - the analysis always gives what was asked for
        kept = tokens if options["max_length"] is None else tokens[:, : options["max_length"]]
        return kept.with_flat_values(found.lookup(kept.flat_values, -1) + 2)

    return Prepared(store, tokens=tokens.flat_values)


def stored_spec(description: Options) -> tf.io.RaggedFeature:
    """A ragged row of int64."""
    return tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)


def finish(description: Options, stored: tf.RaggedTensor) -> tf.Tensor:
    """Pads with 0: int64 ids of shape [rows, max_length], or as long as the longest row where there is no limit."""
    return stored.to_tensor(default_value=0, shape=[None, description["max_length"]])
