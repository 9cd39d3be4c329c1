"""Texts as ids before the graph, by tokenizers that models bring: by the batch, in the worker.

Keyed rows get a column of ids for each such feature, and one for each part that comes with them. The graph takes the
ids; the parts replace those that the graph makes of the ids alone, as a client of the serving model sends them.
"""

import os
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.chat import ChatOptions
from recordmill.transforms.contract.kinds.text import TextOptions, TextsOptions
from recordmill.transforms.contract.stored import Ragged
from recordmill.transforms.numpy.tokenizers import TextTokenizer

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a batch is one thread's: workers run several at a time


def encoded_name(feature: str, part: str = "") -> str:
    """Returns the internal column of a feature's ids, or of a part that comes with them."""
    return f"@{part or 'ids'} {feature}"


def graph_column(rows: pa.Table, feature: str) -> pa.ChunkedArray:
    """Returns a feature's column as the graph takes it."""
    ids = encoded_name(feature)
    return rows[ids if ids in rows.column_names else feature]


class TextEncoder:
    """Encodes the texts of keyed rows; may be called from several threads."""

    def __init__(self, features: Mapping[str, FeatureOptions]) -> None:
        """Loads the tokenizers. Raises: UserError: a package is missing."""
        self._texts = {
            name: (options, TextTokenizer(options.model_bytes or b"", options))
            for name, options in features.items()
            if isinstance(options, TextOptions) and options.in_library and not isinstance(options, ChatOptions)
        }

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Adds the columns of ids and parts."""
        for name, (options, tokenizer) in self._texts.items():
            column = rows[name].combine_chunks()
            for part, values in _encoded(options, tokenizer, column).items():
                rows = rows.append_column(encoded_name(name, part), values)
        return rows


def _encoded(options: TextOptions, tokenizer: TextTokenizer, column: pa.Array) -> dict[str, pa.Array]:
    """Returns the ids of texts, or of each text of a row, and the parts that come with them."""
    if isinstance(options, TextsOptions):
        return _texts(options, tokenizer, column)
    encoded = tokenizer.encode_batch(_strings(column))
    ids = {"": _lists(encoded.ids)}
    return ids | ({"length": pa.array(encoded.lengths)} if options.keep_length else {})


def _texts(options: TextsOptions, tokenizer: TextTokenizer, column: pa.Array) -> dict[str, pa.Array]:
    """Encodes each of a row's texts; missing lists are empty."""
    kept = pc.list_slice(column, 0, options.max_texts, return_fixed_size_list=False)
    texts = np.concatenate([[0], np.cumsum(pc.list_value_length(kept).to_numpy())])
    ids = tokenizer.encode_batch(_strings(pc.list_flatten(kept))).ids
    return {"": _lists(Ragged(ids.values, ids.splits[texts])), "lengths": _lists(Ragged(ids.lengths(), texts))}


def _strings(column: pa.Array) -> list[str]:
    return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _lists(rows: Ragged) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(rows.splits, pa.int32()), pa.array(rows.values))
