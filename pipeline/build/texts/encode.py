"""Texts, pairs and chats as ids before the graph, by tokenizers that models bring: by the batch, in the worker.

Keyed rows get a column of ids for each such feature, and one for each part that comes with them. The graph takes the
ids; the parts replace those that the graph makes of the ids alone, as a client of the serving model sends them. So do
labels of tokens, made with their text's ids.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.texts.chat import ChatEncoder
from recordmill.pipeline.build.texts.token_labels import Labeller
from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.pipeline.sources.typing.arrays import without
from recordmill.pipeline.spec.features.feature import Feature
from recordmill.pipeline.spec.features.pair import Pair
from recordmill.pipeline.spec.features.text import Text, Texts
from recordmill.pipeline.spec.features.token_labels import TokenLabels
from recordmill.transforms.contract.kinds.base import Learned
from recordmill.transforms.contract.kinds.text import FIELDS
from recordmill.transforms.contract.stored import Ragged, splits_of
from recordmill.transforms.numpy.tokenizers import Encoded, PairError, PairTokenizer, TextTokenizer, TokenizerError

MOST_AT_ONCE = 4 << 20  # 4 MiB of texts: `tokenizers` takes up to 290 times as much
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a batch is one thread's: workers run several at a time

Columns: TypeAlias = dict[str, pa.Array]  # the columns of a feature's ids, "", and of their parts


def encoded_name(feature: str, part: str = "") -> str:
    """Returns the internal column of a feature's ids or labels, or of a part that comes with them."""
    return f"@{part or 'ids'} {feature}"


def graph_column(rows: pa.Table, feature: str) -> pa.ChunkedArray:
    """Returns a feature's column as the graph takes it."""
    ids = encoded_name(feature)
    return rows[ids if ids in rows.column_names else feature]


class RowEncoder:
    """Encodes the texts, pairs, chats and labels of keyed rows; may be called from several threads."""

    def __init__(
        self, features: Mapping[str, Feature], learned: Mapping[str, Learned], columns: Mapping[str, str]
    ) -> None:
        """Takes each feature's column, for faults. Raises: UserError: a package is missing."""
        texts = {name: each for name, each in features.items() if each.in_library}
        encoders: Mapping[str, Any] = {"chat": ChatEncoder, "pair": PairEncoder}
        self._encoders = {
            name: encoders.get(each.kind, TextEncoder)(each, learned[name]) for name, each in texts.items()
        }
        self._labels = {name: each for name, each in features.items() if isinstance(each, TokenLabels)}
        self._columns = columns

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, Faults]:
        """Adds the columns of ids and parts, empty for rows at fault; also returns the faults.

        Where a package fails, halves find the row: it fails for no other. Many bytes are encoded by halves, too.
        """
        try:
            if len(rows) < 2 or rows.select([*self._encoders]).nbytes < MOST_AT_ONCE:
                return self._whole(rows)
        except TokenizerError as error:
            if len(rows) < 2:
                empty = pa.concat_tables([self._whole(rows.slice(0, 0))[0], rows], promote_options="default")
                return empty, {0: Fault(error.reason, str(error), self._columns[error.feature])}
        middle = len(rows) // 2
        (first, faults), (second, more) = self(rows.slice(0, middle)), self(rows.slice(middle))
        return pa.concat_tables([first, second]), faults | {row + middle: fault for row, fault in more.items()}

    def _whole(self, rows: pa.Table) -> tuple[pa.Table, Faults]:
        faults: Faults = {}
        for name, parts, wrong in self._encoded(rows):
            faults |= {
                row: replace(fault, column=self._columns[name]) for row, fault in wrong.items() if row not in faults
            }
            for part, values in parts.items():
                rows = rows.append_column(encoded_name(name, part), values)
        return rows, faults

    def _encoded(self, rows: pa.Table) -> Iterator[tuple[str, Columns, Faults]]:
        for name, encoder in self._encoders.items():
            labels = {label: each for label, each in self._labels.items() if each.text == name}
            try:
                if labels and isinstance(encoder, TextEncoder):
                    yield from encoder.labelled(name, labels, rows)
                else:
                    yield name, *encoder.columns(rows[name].combine_chunks())
            except TokenizerError as error:
                error.feature = name
                raise

    def good(self, rows: pa.Table) -> pa.Table:
        """Returns the rows without faults, with the columns of ids and parts."""
        return without(*self(rows))


class TextEncoder:
    """Encodes a column of texts, or of several texts a row."""

    def __init__(self, options: Text | Texts, learned: Learned) -> None:
        """Loads the tokenizer. Raises: UserError: a package is missing."""
        self._options, self._tokenizer = options, TextTokenizer(learned.model or b"", options.tokenizer_options)

    def columns(self, column: pa.Array) -> tuple[Columns, Faults]:
        """Returns the ids of binary texts, and the parts that come with them; there are no faults."""
        if not isinstance(self._options, Texts):
            return self._stored(self._tokenizer.encode_batch(_strings(column))), {}
        kept = pc.list_slice(column, 0, self._options.max_texts, return_fixed_size_list=False)  # missing ones are empty
        texts = splits_of(pc.list_value_length(kept).to_numpy())
        ids = self._tokenizer.encode_batch(_strings(pc.list_flatten(kept))).ids
        return {"": _lists(Ragged(ids.values, ids.splits[texts])), "lengths": _lists(Ragged(ids.lengths(), texts))}, {}

    def labelled(
        self, text: str, labels: Mapping[str, TokenLabels], rows: pa.Table
    ) -> Iterator[tuple[str, Columns, Faults]]:
        """Yields the columns and faults of a text, then of each of the labels of its tokens, by the same encodings."""
        texts = _strings(rows[text].combine_chunks())
        encodings = self._tokenizer.encodings(texts)
        yield text, self._stored(self._tokenizer.stored([each.ids for each in encodings])), {}
        for name, options in labels.items():
            made = list(map(Labeller(options, self._tokenizer.words), texts, encodings, rows[name].to_pylist()))
            faults = {row: each for row, each in enumerate(made) if isinstance(each, Fault)}
            of_tokens = [[] if isinstance(each, Fault) else each for each in made]
            yield name, {"": _lists(self._tokenizer.stored(of_tokens, options.ignore).ids)}, faults

    def _stored(self, encoded: Encoded) -> Columns:
        lengths = {"length": pa.array(encoded.lengths)} if "length" in self._options.library_parts else {}
        return {"": _lists(encoded.ids), **lengths}


class PairEncoder:
    """Encodes a column of pairs, JSON objects of two texts."""

    def __init__(self, options: Pair, learned: Learned) -> None:
        """Loads the tokenizer. Raises: UserError: a package is missing."""
        self._tokenizer = PairTokenizer(learned.model or b"", options.tokenizer_options)

    def columns(self, column: pa.Array) -> tuple[Columns, Faults]:
        """Returns the ids, empty for rows at fault; and the faults by row."""
        pairs = [tuple(map(json.loads(cell).get, FIELDS)) for cell in column.to_pylist()]
        rows, faults = list[list[int]](), Faults()
        for number, (first, second) in enumerate(self._tokenizer.tokens(pairs)):
            try:
                rows.append(self._tokenizer.join(first, second))
            except PairError as error:
                rows.append([])
                faults[number] = Fault(error.reason, str(error))
        return {"": pa.array(rows, pa.list_(pa.int64()))}, faults


def _strings(column: pa.Array) -> list[Any]:
    return column.cast(pa.list_(pa.string()) if pa.types.is_list(column.type) else pa.string()).to_pylist()  # type: ignore[no-any-return]


def _lists(rows: Ragged) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(rows.splits, pa.int32()), pa.array(rows.values))
