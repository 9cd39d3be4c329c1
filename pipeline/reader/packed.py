"""Packed rows: the lists of several records as one row, by the index that the build made.

A pack's features are aligned: one index gives the rows of each. The first of those read has the parts `segments` and
`positions`, each value's record in the row and place in it.
"""

from collections.abc import Mapping

import numpy as np

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.manifest_parts import Pack
from recordmill.pipeline.dataset.packs import PackIndex
from recordmill.pipeline.dataset.paths import ADVICE
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.options import THE_LABEL, ReadOptions
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.stored import Column, Ragged, RowError, Stored, part_name, positions_of, splits_of
from recordmill.transforms.numpy.buffers import Array, Empty
from recordmill.transforms.numpy.texts import packed_rows, padded

Descriptions = Mapping[str, Description]  # by feature
LENGTHS = "@lengths"  # the column with the numbers of values of a row's pieces


def default_form(manifest: Manifest) -> str:
    """Returns the form of texts that an input has by default."""
    is_packed = len(manifest.packs) == 1 and {*manifest.packs[0].features} == manifest.features.keys()
    return "packed" if is_packed else "padded"


def chosen_pack(manifest: Manifest, given: ReadOptions) -> Pack | None:
    """Returns the pack to read; None if the rows are records. Raises: DatasetError: no pack has such rows."""
    if given.text != "packed" or not manifest.packs:
        return None
    fits = [pack for pack in manifest.packs if given.text_length in (None, pack.length)]
    if len(fits) != 1:
        lengths = f"text_length {' or '.join(str(pack.length) for pack in manifest.packs)}, got {given.text_length}"
        raise DatasetError(f"text='packed' reads rows of {lengths}; text='padded' reads records")
    [pack], label = fits, manifest.label if given.label == THE_LABEL else given.label
    others = [name for name in (*(given.features or ()), label) if name is not None and name not in pack.features]
    if others:
        absent = f"'{others[0]}' is not in the packed rows, of several records' {', '.join(pack.features)}"
        raise DatasetError(f"{absent}: leave it out of features, with label=None")
    for name, value in (("with_key", False), ("balance", False)):
        if getattr(given, name) != value:
            raise DatasetError(f"{name} is for records, and a packed row joins several: leave it out")
    return pack


def lists_of(parts: Mapping[str, Stored]) -> dict[str, Stored]:
    """Returns the parts that are lists: a text's `length` is one number a record."""
    return {name: part for name, part in parts.items() if part.shape is None}


def check_lists(features: Descriptions) -> None:
    """Checks that packed features are lists of whole numbers. Raises: DatasetError."""
    for name, description in features.items():
        if {part.dtype for part in lists_of(description.parts()).values()} != {"int64"}:
            raise DatasetError(f"'{name}' is no list of int64, and its rows cannot be packed: {ADVICE}")


def columns(pieces: PackIndex, records: Mapping[str, Column]) -> dict[str, Column]:
    """Makes the columns of packed rows from those of their pieces' records, in order.

    Raises: RowError: a record, counted over all pieces, is shorter than its piece, or its lists differ in length.
    """
    made: dict[str, Column] = {LENGTHS: Ragged(pieces.sizes, pieces.splits)}
    ends, known = pieces.firsts + pieces.sizes, None
    splits = splits_of(pieces.sizes)
    for name, column in records.items():
        assert isinstance(column, Ragged)  # noqa: S101 - `lists_of`
        lengths = column.lengths()
        known = lengths if known is None else known
        for row in np.flatnonzero((ends > lengths) | (lengths != known))[:1].tolist():
            taken = f"a packed row takes {pieces.sizes[row]} from {pieces.firsts[row]} on, of {known[row]}"
            raise RowError(row, f"'{name}' holds {lengths[row]} values: {taken}")
        values = column.values
        if splits[-1] < len(values):  # pieces, or cut
            values = values[positions_of(column.splits[:-1] + pieces.firsts, pieces.sizes)]
        made[name] = Ragged(values, splits[pieces.splits])
    return made


def arrays(pack: Pack, features: Descriptions, columns: Mapping[str, Column], empty: Empty) -> dict[str, Array]:
    """Returns the rows' lists by part, [rows, length], padded; with `segments` and `positions` of the first feature.

    Raises: RowError: a row has more values than `length`.
    """
    lengths, ready = columns[LENGTHS], dict[str, Array]()
    assert isinstance(lengths, Ragged)  # noqa: S101 - `columns`
    for number, (name, description) in enumerate(features.items()):
        for part in lists_of(description.parts()):
            padding = 0 if part else pack.padding.get(name, description.padding)
            column = columns[part_name(name, part)]
            assert isinstance(column, Ragged)  # noqa: S101 - `columns`
            if number or part:
                ready[part_name(name, part)] = padded(column, pack.length, padding, empty)
                continue
            made = packed_rows(name, column, lengths, pack.length, padding, empty)
            ready |= {part_name(name, each): values for each, values in made.items()}
    return ready
