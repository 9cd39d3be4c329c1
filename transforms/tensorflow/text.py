"""Text: cleaned, cut into tokens, stored as ids, padded when it is read."""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from recordmill.transforms.contract.kinds.text import MODEL_TOKENIZERS, SpecialIds, TextDescription, TextOptions
from recordmill.transforms.tensorflow.cleaning import clean
from recordmill.transforms.tensorflow.kind import Context, Parts, Prepared, Statistics
from recordmill.transforms.tensorflow.tokenizers import tokenize


def prepare(options: TextOptions, column: tf.Tensor, context: Context) -> Prepared:
    """Counts the tokens of the train split (other rows come empty); stores int64 ids, ragged, cut at `max_length`.

    The part `length` is the number of ids before the cut. A missing text is `""`. With `pack` each row is one document,
    and the part `lengths` says so: documents get together where a shard is built (`worker.text_packing`).
    """
    tokens = tokenize(clean(column, options), options)
    if not options.has_vocabulary:
        return Prepared(lambda _: _stored(tokens, options, partial(_numbers, options)))

    def store(found: Statistics) -> Parts:
        assert found.lookup is not None  # noqa: S101 - the analysis always gives what was asked for
        return _stored(tokens, options, partial(_places, options, found.lookup))

    counted = tokens.flat_values if options.counts_words else tokens.flat_values[:0]
    return Prepared(store, tokens=counted)


def _places(options: TextOptions, lookup: Callable[[tf.Tensor, int], tf.Tensor], tokens: tf.Tensor) -> tf.Tensor:
    """The ids of tokens by their places in the vocabulary; several unknown ids are given by hash."""
    special, buckets = options.special, options.oov_buckets
    assert special.unknown is not None  # noqa: S101 - there always is one beside a vocabulary
    if buckets == 1:
        return lookup(tokens, special.unknown - special.first) + special.first
    places = lookup(tokens, -1)
    return tf.where(places < 0, _hashed(tokens, buckets) + special.unknown, places + special.first)


def _numbers(options: TextOptions, tokens: tf.Tensor) -> tf.Tensor:
    """The ids of tokens that need no vocabulary: a model's own, hashes, or bytes."""
    if options.tokenizer in MODEL_TOKENIZERS:
        return tokens
    if options.hash_buckets is not None:
        tokens = _hashed(tokens, options.hash_buckets)
    return tokens + options.special.first


def _hashed(tokens: tf.Tensor, buckets: int) -> tf.Tensor:
    """0 to n-1 by FarmHash's Fingerprint64, which is the same for ever."""
    return tf.strings.to_hash_bucket_fast(tokens, buckets)


def _stored(tokens: tf.RaggedTensor, options: TextOptions, ids_of: Callable[[tf.Tensor], tf.Tensor]) -> Parts:
    special = options.special
    kept = tokens
    if options.max_length is not None:
        limit = options.max_length - special.added
        kept = tokens[:, :limit] if options.truncate == "end" else tokens[:, -limit:]
    ids = surround(kept.with_flat_values(ids_of(kept.flat_values)), special)
    if options.pack is not None:
        lengths = tf.RaggedTensor.from_row_splits(ids.row_lengths(), tf.range(ids.nrows() + 1), validate=False)
        return {"": ids, "lengths": lengths}
    return {"": ids} | ({"length": tokens.row_lengths() + special.added} if options.keep_length else {})


def surround(ids: tf.RaggedTensor, special: SpecialIds) -> tf.RaggedTensor:
    """Puts the begin id before each row and the end id after it, those of them that there are.

    `tf.concat` does so too, with assertions: ops with a state, which an analysis also runs.
    """
    if not special.added:
        return ids
    rows = ids.nrows()
    splits = ids.row_splits + special.added * tf.range(rows + 1)
    inner = tf.range(tf.size(ids.flat_values, tf.int64)) + special.added * ids.value_rowids()
    places, values = [inner + (special.begin is not None)], [ids.flat_values]
    for id_, place in ((special.begin, splits[:-1]), (special.end, splits[1:] - 1)):
        if id_ is not None:
            places.append(place)
            values.append(tf.fill([rows], tf.constant(id_, tf.int64)))
    stitched = tf.dynamic_stitch([tf.cast(place, tf.int32) for place in places], values)
    return tf.RaggedTensor.from_row_splits(stitched, splits, validate=False)


def features(description: TextDescription, stored: Parts) -> Parts:
    """Pads: int64 ids of shape [rows, max_length], or as long as the longest row where there is no limit.

    The part `length` (int64, shape [rows]) is as it was stored. Packed rows are [rows, packed] wide; their parts
    `segments` (1 for a row's first document, 2, …) and `positions` (0, 1, … in each document) are int32 of the same
    shape and 0 where the row is padding. What of a longer row is beyond that, which only serving meets, is left out.
    """
    wide = description.packed or description.max_length
    padded = stored[""].to_tensor(default_value=description.padding_id, shape=[None, wide])
    if description.packed is None:
        return {**stored, "": padded}
    inner = {part: values.to_tensor(shape=[None, wide]) for part, values in _inside(stored["lengths"]).items()}
    return {"": padded, **inner}


def unpacked(encoded: tf.Tensor) -> tf.RaggedTensor:
    """The ids of packed rows, strings of shape [rows] as records hold them: ragged int64 [rows, None]."""
    ids = tf.io.decode_raw(tf.strings.reduce_join(encoded), tf.int32)
    lengths = tf.cast(tf.strings.length(encoded), tf.int64) // tf.int32.size
    return tf.RaggedTensor.from_row_lengths(tf.cast(ids, tf.int64), lengths, validate=False)


def _inside(lengths: tf.RaggedTensor) -> Parts:
    """Of each id of packed rows: which of the row's documents it belongs to, from 1, and its place there, from 0."""
    each = lengths.flat_values
    splits = tf.gather(tf.concat([[0], tf.cumsum(each)], axis=0), lengths.row_splits)
    numbers = tf.range(1, tf.size(each, tf.int64) + 1) - tf.gather(lengths.row_starts(), lengths.value_rowids())
    flat = {"segments": tf.repeat(numbers, each), "positions": tf.ragged.range(each).flat_values}
    return {
        part: tf.RaggedTensor.from_row_splits(tf.cast(values, tf.int32), splits, validate=False)
        for part, values in flat.items()
    }
