"""Counts the profile of a batch of rows that became records (`pipeline.dataset.profile`)."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from recordmill.pipeline.build.worker.transform_batch import Stored
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.profile import MOST_NAMES, MOST_VALUES, FeatureProfile
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.category import NameOptions
from recordmill.transforms.contract.kinds.number import NumberOptions
from recordmill.transforms.contract.kinds.text import TextOptions

Ids = npt.NDArray[np.int64]


def profile_of(
    features: Mapping[str, FeatureOptions], rows: pa.Table, stored: Stored, lengths: Mapping[str, Ids]
) -> dict[str, FeatureProfile]:
    """Counts every feature of the spec.

    Args:
        features: their options.
        rows: the keyed rows: raw columns by feature.
        stored: what is stored of the same rows.
        lengths: the number of ids of each text, int64 [texts], by feature.
    """
    return {name: _feature(name, options, rows, stored, lengths) for name, options in features.items()}


def _feature(
    name: str, options: FeatureOptions, rows: pa.Table, stored: Stored, lengths: Mapping[str, Ids]
) -> FeatureProfile:
    column = rows[name] if name in rows.column_names else None
    missing = 0 if column is None else _missing(options, column)
    if isinstance(options, NumberOptions) and column is not None:
        return FeatureProfile(rows.num_rows, missing, _histogram(_numbers(column)))
    ids = _ids(stored.get(name))
    if ids is not None and isinstance(options, NameOptions):
        counts = dict(zip(*(each.tolist() for each in np.unique(ids, return_counts=True)), strict=True))
        few = counts if len(counts) <= MOST_NAMES else None
        unknown = _unknown_names(options, ids, missing)
        return FeatureProfile(rows.num_rows, missing, None, few, len(ids), unknown)
    if ids is not None and isinstance(options, TextOptions) and name in lengths:
        histogram = _histogram(lengths[name].astype(np.float32))
        return FeatureProfile(rows.num_rows, missing, histogram, None, len(ids), _unknown_words(options, ids))
    return FeatureProfile(rows.num_rows, missing)


def _missing(options: FeatureOptions, column: pa.ChunkedArray) -> int:
    """Counts NaN, empty strings and empty lists; only lists and texts may be empty where they are not optional."""
    if pa.types.is_list(column.type):
        return int(pc.sum(pc.equal(pc.list_value_length(column), 0)).as_py() or 0)
    if not (options.optional or isinstance(options, TextOptions)):
        return 0
    if pa.types.is_floating(column.type):
        return int(np.count_nonzero(np.isnan(column.to_numpy())))
    if pa.types.is_binary(column.type):
        return int(pc.sum(pc.equal(pc.binary_length(column), 0)).as_py() or 0)
    return 0


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    values = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    numbers = values.to_numpy().astype(np.float32)
    return numbers[np.isfinite(numbers)]


def _histogram(values: npt.NDArray[np.float32]) -> Histogram:
    seen = Histogram.of(values)
    return seen if len(seen.keys) <= MOST_VALUES else Histogram.merged([seen], MOST_VALUES)


def _ids(stored: object) -> Ids | None:
    """Returns a feature's ids, int64 [ids]; None where a function of the user's stores something else."""
    flat = stored.flat_values if isinstance(stored, tf.RaggedTensor) else stored
    return flat.numpy() if isinstance(flat, tf.Tensor) and flat.dtype == tf.int64 and flat.shape.rank == 1 else None


def _unknown_names(options: NameOptions, ids: Ids, missing: int) -> int:
    """Counts the ids of names that are not in the vocabulary; hashed names and a label's are all known."""
    if not options.has_vocabulary or options.is_label:
        return 0
    if not options.oov_buckets:  # unknown and missing names share the id 0
        return int(np.count_nonzero(ids == 0)) - missing
    return int(np.count_nonzero((ids > 0) & (ids <= options.oov_buckets)))


def _unknown_words(options: TextOptions, ids: Ids) -> int:
    first = options.special.unknown
    return 0 if first is None else int(np.count_nonzero((ids >= first) & (ids < first + options.oov_buckets)))
