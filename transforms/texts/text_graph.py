"""Text: cleaned, tokenized, stored as ids, padded when read; one text a row, or several.

Several texts, such as an image's captions, are stored concatenated with their lengths.
"""

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import tensorflow as tf

from recordmill.transforms.base.description import SpecialIds
from recordmill.transforms.base.graph import Context, Parts, Prepared, Statistics, Stored, cut
from recordmill.transforms.texts import text_stored as kinds
from recordmill.transforms.texts.tokenizers_graph import clean, tokenize

if TYPE_CHECKING:
    from recordmill.transforms.texts.chat_spec import Chat
    from recordmill.transforms.texts.pair_spec import Pair
    from recordmill.transforms.texts.text_spec import Texts, Tokenized
    from recordmill.transforms.texts.token_labels_spec import TokenLabels


def prepare(options: "Tokenized", column: tf.Tensor, context: Context) -> Prepared:
    """Learns the tokens' vocabulary; stores int64 ids, ragged, cut at `max_length`, and their `length` before the cut.

    A missing text is `""`. A library's tokenizer gives complete ids, ragged [rows, None], in place of strings.
    """
    if options.in_library:
        return Prepared(lambda _: _with_lengths(tf.identity(column), options))
    tokens, special = tokenize(clean(column, options), options, context.learned), options.special(context.learned)

    def ids_of(statistics: Statistics, kept: tf.Tensor) -> tf.Tensor:
        """Returns tokens' ids: a model's own, hashes, bytes, or by vocabulary index; unknown ids by hash."""
        if options.needs_model:
            return kept
        if options.hash_buckets is not None:
            return tf.strings.to_hash_bucket_fast(kept, options.hash_buckets) + special.first
        if not options.has_vocabulary:
            return kept + special.first
        assert statistics.lookup is not None  # noqa: S101 - the analysis gives every vocabulary
        assert special.unknown is not None  # noqa: S101 - a vocabulary always has one
        if options.oov_buckets == 1:
            return statistics.lookup(kept, special.unknown - special.first) + special.first
        indices = statistics.lookup(kept, -1)
        is_unknown = indices < 0
        hashed = tf.strings.to_hash_bucket_fast(kept, options.oov_buckets)
        return tf.where(is_unknown, hashed + special.unknown, indices + special.first)

    def store(statistics: Statistics) -> Parts:
        kept = tokens
        if options.max_length is not None:
            limit = options.max_length - special.added
            kept = tokens[:, :limit] if options.truncate == "end" else tokens[:, -limit:]
        ids = surround(kept.with_flat_values(ids_of(statistics, kept.flat_values)), special)
        stored = _with_lengths(ids, options)
        return stored | {"length": tokens.row_lengths() + special.added} if "length" in stored else stored

    return Prepared(store, tokens=(lambda: tokens.flat_values) if options.learns else None)


def prepare_chats(options: "Chat", column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores a chat's ids, ragged [rows, None], and a mask of zeros: a step before the graph makes both."""
    return Prepared(
        lambda _: {"": tf.identity(column), kinds.LOSS_MASK: column.with_flat_values(tf.zeros_like(column.flat_values))}
    )


def prepare_pairs(options: "Pair", column: tf.RaggedTensor, context: Context) -> Prepared:
    """Stores a pair's ids, ragged [rows, None], and for each its type: the first separator ends the first text."""
    of_row, (before, _, between, _, after) = column.value_rowids(), map(len, context.learned.types)
    place = tf.range(tf.size(of_row, tf.int64)) - tf.gather(column.row_starts(), of_row)
    left = tf.gather(column.row_lengths(), of_row) - place - 1
    separators = tf.where(column.flat_values == context.learned.separator_id, place, tf.int64.max)
    since = place - tf.gather(tf.math.segment_min(separators, of_row), of_row)
    more = tf.where((since < between) | (left >= after), tf.minimum(since, between), between + after - left)
    at = tf.where(since < 0, tf.minimum(place, before), before + 1 + more)
    types = tf.gather([*chain.from_iterable(context.learned.types)], at)
    types = column.with_flat_values(tf.cast(types, tf.int64))
    return Prepared(lambda _: {"": tf.identity(column), kinds.TYPES: types})


def prepare_labels(options: "TokenLabels", column: None, context: Context) -> Prepared:
    """Stores the number to ignore for each of the text's ids, ragged [rows, None]: a step before the graph labels."""
    ids = context.columns[options.text]
    ignored = tf.fill(tf.shape(ids.flat_values), tf.constant(options.ignore, tf.int64))
    return Prepared(lambda _: {"": ids.with_flat_values(ignored)})


def _with_lengths(ids: tf.RaggedTensor, options: "Tokenized") -> dict[str, Stored]:
    """Returns ids, and each text's length if it is wanted; with windows, the zeros of a single one."""
    lengths = ids.row_lengths()
    windows = {} if options.windows is None else dict.fromkeys(kinds.WINDOW_PARTS, tf.zeros_like(lengths))
    return {"": ids, **windows} | ({"length": lengths} if "length" in options.library_parts else {})


def surround(ids: tf.RaggedTensor, special: SpecialIds) -> tf.RaggedTensor:
    """Puts the ids of begin and end, if any, around each row (`tf.concat` would add stateful assertions)."""
    if not special.added:
        return ids
    rows = ids.nrows()
    splits = ids.row_splits + special.added * tf.range(rows + 1)
    inner = tf.range(tf.size(ids.flat_values, tf.int64)) + special.added * ids.value_rowids()
    positions, values = [inner + (special.begin is not None)], [ids.flat_values]
    for id_, position in ((special.begin, splits[:-1]), (special.end, splits[1:] - 1)):
        if id_ is not None:
            positions.append(position)
            values.append(tf.fill([rows], tf.constant(id_, tf.int64)))
    stitched = tf.dynamic_stitch([tf.cast(each, tf.int32) for each in positions], values)
    return tf.RaggedTensor.from_row_splits(stitched, splits, validate=False)


def features(description: kinds.TextDescription | kinds.TokenLabelsDescription, stored: Parts) -> Parts:
    """Pads to int64 ids of shape [rows, max_length], by default the longest row's length.

    The part `length`, int64 [rows], is unchanged. Packed rows are [rows, packed]; their parts `segments` (1 for a row's
    first document, 2, …) and `positions` (0, 1, … in each document) are int32 of the same shape, with 0 as padding.
    Longer rows, possible only in serving, are cut.
    """
    wide = description.packed or description.max_length
    padded = stored[""].to_tensor(default_value=description.padding_id, shape=[None, wide])
    if description.packed is None:
        beside = {part: stored[part].to_tensor(shape=[None, wide]) for part in description.aligned if part in stored}
        return {**stored, "": padded, **beside}
    lengths = stored["lengths"]
    each = lengths.flat_values
    splits = tf.gather(tf.concat([[0], tf.cumsum(each)], axis=0), lengths.row_splits)
    numbers = tf.range(1, tf.size(each, tf.int64) + 1) - tf.gather(lengths.row_starts(), lengths.value_rowids())
    flat = {"segments": tf.repeat(numbers, each), "positions": tf.ragged.range(each).flat_values}
    of_rows = partial(tf.RaggedTensor.from_row_splits, row_splits=splits, validate=False)
    inner = {part: of_rows(tf.cast(values, tf.int32)) for part, values in flat.items()}
    return {"": padded, **{part: values.to_tensor(shape=[None, wide]) for part, values in inner.items()}}


def unpacked(encoded: tf.Tensor) -> tf.RaggedTensor:
    """Decodes stored packed rows, strings of shape [rows], to int64 ids: ragged [rows, None]."""
    ids = tf.io.decode_raw(tf.strings.reduce_join(encoded), tf.int32)
    lengths = tf.cast(tf.strings.length(encoded), tf.int64) // tf.int32.size
    return tf.RaggedTensor.from_row_lengths(tf.cast(ids, tf.int64), lengths, validate=False)


def prepare_texts(options: "Texts", column: tf.RaggedTensor, context: Context) -> Prepared:
    """Prepares the first `max_texts` texts of each row, ragged [rows, None]; missing lists become empty.

    Stores a row's concatenated ids, and each text's `lengths`. A library's tokenizer gives the ids of a single text.
    """
    if options.in_library:
        one_text = tf.RaggedTensor.from_row_splits(column.row_lengths(), tf.range(column.nrows() + 1), validate=False)
        return Prepared(lambda _: {"": tf.identity(column), "lengths": one_text})
    kept = cut(options.max_texts, column)
    prepared = prepare(options, kept.flat_values, context)

    def store(statistics: Statistics) -> Parts:
        ids = prepared.store(statistics)[""]
        splits = tf.gather(ids.row_splits, kept.row_splits)
        of_rows = tf.RaggedTensor.from_row_splits(ids.flat_values, splits, validate=False)
        return {"": of_rows, "lengths": kept.with_flat_values(ids.row_lengths())}

    return replace(prepared, store=store)


def cut_each(stored: Parts, length: int) -> Parts:
    """Keeps the first `length` ids of each text."""
    lengths = stored["lengths"]
    kept = tf.RaggedTensor.from_row_lengths(stored[""].flat_values, lengths.flat_values)[:, :length]
    splits = tf.gather(kept.row_splits, lengths.row_splits)
    of_rows = tf.RaggedTensor.from_row_splits(kept.flat_values, splits, validate=False)
    return {"": of_rows, "lengths": lengths.with_flat_values(kept.row_lengths())}


def texts_features(description: kinds.TextsDescription, stored: Parts) -> Parts:
    """Pads all texts of each row, none longer than `max_length`: int64 ids [rows, texts, max_length].

    By default sides are the longest's. `lengths`, int64 [rows, texts], are each text's ids, 0 as padding; `length`,
    int64 [rows], a varying number of texts.
    """
    lengths = stored["lengths"]
    most = description.max_texts if description.texts_per_row == "varying" else description.texts_per_row
    nested = lengths.with_flat_values(tf.RaggedTensor.from_row_lengths(stored[""].flat_values, lengths.flat_values))
    ids = nested.to_tensor(default_value=description.padding_id, shape=[None, most, description.max_length])
    padded = {"": ids, "lengths": lengths.to_tensor(shape=[None, most])}
    return padded | ({"length": lengths.row_lengths()} if description.texts_per_row == "varying" else {})


def first_text(description: kinds.TextsDescription, stored: Parts) -> Parts:
    """Returns each row's first text in the form of a single one; an empty text, with begin and end, if it has none."""
    ids, lengths = stored[""], stored["lengths"]
    ends = ids.row_starts() + tf.reduce_sum(lengths[:, :1], axis=1)
    texts = tf.gather(ids.flat_values, tf.ragged.range(ids.row_starts(), ends))
    added = tf.constant(description.empty_text, tf.int64)
    without = tf.where(lengths.row_lengths() == 0, tf.size(added, tf.int64), 0)
    return {"": tf.concat([texts, tf.gather(added, tf.ragged.range(without))], axis=1)}
