"""Lists of a batch made rectangular, and texts as models take them: padded, ragged or packed.

All rows are processed at once, without TensorFlow; padding is as in `transforms.texts.text_graph`.

>>> padded(Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])), None, 0, np.empty)
array([[7, 8],
       [0, 0],
       [9, 0]])
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.transforms.base.buffers import Array, Empty
from recordmill.transforms.base.stored import FinishOptions, Ragged, RowError, positions_of, splits_of

if TYPE_CHECKING:
    from recordmill.transforms.texts.text_stored import TextDescription, TextsDescription, TokenLabelsDescription

Shares: TypeAlias = npt.NDArray[np.float64] | float  # in [0, 1): one a row, or one for all
ID = np.dtype("<i4")  # the dtype of ids in packed rows
WIDE = 128  # values a row: wider rows are copied one by one, others at once by their places, or a mask if most are full


def texts(
    name: str,
    description: "TextDescription | TokenLabelsDescription",
    stored: Mapping[str, Any],
    options: FinishOptions,
    empty: Empty,
    shares: Shares = 0.0,
) -> dict[str, Any]:
    """Returns a text's ids, by part, in the form of the options; with several texts a row all, or one (`shares`).

    All of several texts: `all_texts`. Padded: int64 [rows, length]; `mask`, bool of that shape, True for ids of the
    text. Ragged: `Ragged` of int64, cut at a given length. Packed: `packed_rows`, here fewer rows than texts, without
    the stored part `length`. Raises: RowError: as `packed_rows`. ValueError: packing without a row length.
    """
    text: Any = description.as_text
    if text is not None and text.several:
        _check_rows(name, stored[""], stored["lengths"])
        if options.captions == "all":
            return all_texts(text, stored, options, empty)
        stored = {"": one_text(text, stored, shares)}
    ids, padding, length = stored[""], description.padding_id, options.length_of(description.max_length)
    if description.packed is not None:
        sizes = np.fromiter(map(len, ids), np.int64, len(ids))  # int32 in bytes
        for row in np.flatnonzero(sizes % ID.itemsize)[:1].tolist():
            raise RowError(row, f"'{name}' has {sizes[row]} bytes, not ids of {ID.itemsize} bytes each")
        ids = Ragged(np.frombuffer(b"".join(ids), ID), splits_of(sizes // ID.itemsize))
        return packed_rows(name, ids, stored["lengths"], description.packed, padding, empty)
    aligned = {part: stored[part] for part in description.aligned}
    if options.text == "packed":
        if length is None:
            raise ValueError(f"to pack '{name}', which lacks max_length, give text_length, the ids of a row")
        packed = {part: first_fit(Ragged(each.values, ids.splits), length)[0] for part, each in aligned.items()}
        beside = {part: padded(each, length, 0, empty) for part, each in packed.items()}
        return packed_rows(name, *first_fit(ids, length), length, padding, empty) | beside
    if options.text == "ragged":
        kept = {part: each if length is None else cut(each, length) for part, each in {"": ids, **aligned}.items()}
        return {**stored, **kept}
    full = padded(ids, length, padding, empty)
    beside = {part: padded(each, full.shape[1], 0, empty) for part, each in aligned.items()}
    return {**stored, "": full, **beside, **({"mask": mask(ids, full.shape[1])} if options.masks else {})}


def all_texts(
    description: "TextsDescription", stored: Mapping[str, Any], options: FinishOptions, empty: Empty
) -> dict[str, Any]:
    """Returns all texts of each row, padded or ragged, by part.

    Padded: "" the ids, int64 [rows, texts, length]; `lengths`, int64 [rows, texts]: the ids of each text, 0 as padding;
    `length`, int64 [rows]: a varying number of texts; with `masks` also `mask`, bool. Ragged: "" the concatenated ids
    of a row's texts, and `lengths`, both `Ragged` of int64.
    """
    splits, length = stored["lengths"].splits, options.length_of(description.max_length)
    of_text = Ragged(stored[""].values, splits_of(stored["lengths"].values))
    if length is not None:
        of_text = cut(of_text, length)
    lengths = Ragged(of_text.lengths(), splits)
    if options.text == "ragged":
        return {"": Ragged(of_text.values, of_text.splits[splits]), "lengths": lengths}
    most = description.texts_per_row if isinstance(description.texts_per_row, int) else description.max_texts
    each = padded(of_text, length, description.padding_id, np.empty)
    ids = padded(Ragged(each, splits), most, description.padding_id, empty)
    result = {"": ids, "lengths": padded(lengths, most, 0, empty)}
    if description.texts_per_row == "varying":
        result["length"] = lengths.lengths()
    if options.masks:
        result["mask"] = np.arange(each.shape[1]) < result["lengths"][..., np.newaxis]
    return result


def one_text(description: "TextsDescription", stored: Mapping[str, Any], shares: Shares) -> Ragged:
    """Chooses a text of each row, int64 ids; an empty text, with begin and end, for rows without texts.

    `shares`, float64 [rows] or one for all, in [0, 1), choose text `floor(n * share)` of n: the same of all features.
    """
    ids, lengths, without = stored[""], stored["lengths"], description.empty_text
    counts = lengths.lengths()
    chosen = lengths.splits[:-1] + np.floor(counts * shares).astype(np.int64)
    chosen[counts == 0] = len(lengths.values)  # the empty text, after all others
    values = np.concatenate([ids.values, np.array(without, ids.values.dtype)])
    starts, sizes = splits_of(lengths.values), np.append(lengths.values, len(without))
    return Ragged(values[positions_of(starts[chosen], sizes[chosen])], splits_of(sizes[chosen]))


def padded(rows: Ragged, length: int | None, padding: Any, empty: Empty) -> Array:
    """Pads or cuts lists at the end to a length, by default the longest's: [rows, length, …] of the values' dtype."""
    width = int(rows.lengths().max(initial=0)) if length is None else length
    kept = cut(rows, width)
    return _filled(kept, empty((len(kept.splits) - 1, width, *kept.values.shape[1:]), kept.values.dtype), padding)


def mask(rows: Ragged, length: int) -> Array:
    """Marks the values of padded lists: bool [rows, length]."""
    lengths = np.minimum(rows.lengths(), length).astype(np.int32)  # half the time of int64
    return np.arange(length, dtype=np.int32) < lengths[:, np.newaxis]


def cut(rows: Ragged, length: int) -> Ragged:
    """Keeps the first `length` values of each list."""
    lengths = rows.lengths()
    if lengths.max(initial=0) <= length:
        return rows
    kept = np.minimum(lengths, length)
    return Ragged(rows.values[positions_of(rows.splits[:-1], kept)], splits_of(kept))


def first_fit(texts: Ragged, length: int) -> tuple[Ragged, Ragged]:
    """Packs texts into rows of at most `length` ids: longest first, each into the first row with room.

    First-fit decreasing (Johnson 1973): at most 11/9 of the fewest rows, plus one. Longer texts are cut. Returns what
    `packed_rows` takes.
    """
    lengths = np.minimum(texts.lengths(), length)
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    sizes, left = (-lengths[order]).tolist(), order.tolist()  # of texts without a row
    taken, ends = list[int](), [0]
    while left:  # a row at a time: the longest text that fits, again and again
        room, at = length, 0
        while (at := bisect_left(sizes, -room, at)) < len(left):
            room += sizes.pop(at)
            taken.append(left.pop(at))
        ends.append(len(taken))
    order, texts_of_row = np.array(taken, np.int64), np.array(ends)
    ids = texts.values[positions_of(texts.splits[order], lengths[order])]
    return Ragged(ids, splits_of(lengths[order])[texts_of_row]), Ragged(lengths[order], texts_of_row)


def packed_rows(name: str, ids: Ragged, lengths: Ragged, width: int, padding: int, empty: Empty) -> dict[str, Array]:
    """Pads rows of several texts, concatenated ids and the texts' lengths, int64, to `width`: [rows, width] each.

    "" are the ids, int64; `segments`, int32: 1, 2, … by text in the row; `positions`, int32: 0, 1, … in the text; both
    with 0 as padding. Raises: RowError: a row's lengths do not add up to its ids, or it has more ids than `width`.
    """
    _check_rows(name, ids, lengths, width)
    starts = splits_of(lengths.values)
    segments = 1 + np.arange(len(lengths.values)) - np.repeat(lengths.splits[:-1], lengths.lengths())
    positions = np.arange(len(ids.values), dtype=np.int32)
    positions -= np.repeat(starts[:-1].astype(np.int32), lengths.values)
    segments = np.repeat(segments.astype(np.int32), lengths.values)

    def filled(values: Array, padding: int, dtype: type) -> Array:
        return _filled(Ragged(values, ids.splits), empty((len(ids.splits) - 1, width), dtype), padding)

    full = filled(ids.values, padding, np.int64)
    return {"": full, "segments": filled(segments, 0, np.int32), "positions": filled(positions, 0, np.int32)}


def _check_rows(name: str, ids: Ragged, lengths: Ragged, width: int | None = None) -> None:
    """Compares each row's ids with its texts' lengths, and with the row's width, if any."""
    stored = ids.lengths()
    most = len(ids.values) if width is None else width
    possible = (lengths.values >= 0) & (lengths.values <= most)  # sums of others may wrap around
    stated = np.diff(splits_of(np.where(possible, lengths.values, most + 1))[lengths.splits])
    wrong = np.flatnonzero((stored != stated) | (stored > most))
    if len(wrong):
        row = int(wrong[0])
        ids_of_row = f"{stored[row]} ids" + ("" if width is None else f" in a row of {width}")
        raise RowError(row, f"'{name}' has {ids_of_row}, and its texts have {stated[row]} ids together")


def _filled(rows: Ragged, full: Array, padding: Any) -> Array:
    """Writes rows, none longer than the array is wide, and the padding after them."""
    if len(rows.values) < WIDE * len(full):
        full.fill(padding)
        count, width, *inner = full.shape
        if 2 * len(rows.values) < count * width:
            full.reshape(count * width, *inner)[positions_of(np.arange(count) * width, rows.lengths())] = rows.values
        else:
            full[mask(rows, width)] = rows.values
        return full
    for out, start, end in zip(full, rows.splits.tolist(), rows.splits[1:].tolist(), strict=False):
        out[: end - start] = rows.values[start:end]
        if end - start < len(out):
            out[end - start :] = padding
    return full


def strings(values: Any) -> Array:
    """Returns bytes, or views of them, like TensorFlow's strings: an object array of `bytes`, of the values' shape."""
    shape = np.shape(values) if isinstance(values, np.ndarray) else (len(values),)
    result = np.empty(int(np.prod(shape)), object)
    result[:] = [bytes(value) for value in (values.flat if isinstance(values, np.ndarray) else values)]
    return result.reshape(shape)
