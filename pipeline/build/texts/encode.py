"""Texts, pairs and chats as ids before the graph, by tokenizers that models bring: by the batch, in the worker.

Keyed rows get a column of ids for each such feature, and one for each part that comes with them, which replaces the
graph's. So do labels of tokens, made with their text's ids: from a tag for each of its words, or from spans of its
characters. Tokens and their places are encodings of the package `tokenizers`. Rows at fault become rejects, whose
messages hold neither text nor unknown tags.

>>> spread("B-PER", 3, "bio"), spread("S-PER", 3, "bioes")
(['B-PER', 'I-PER', 'I-PER'], ['B-PER', 'I-PER', 'E-PER'])
"""

import json
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.texts.chat import ChatEncoder
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.pipeline.sources.typing.arrays import without
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.base.stored import Ragged, splits_of
from recordmill.transforms.texts.pair_spec import Pair
from recordmill.transforms.texts.text_spec import Text, Texts
from recordmill.transforms.texts.text_stored import FIELDS, OUTSIDE, TextError
from recordmill.transforms.texts.token_labels_spec import TokenLabels
from recordmill.transforms.texts.tokenizers import Encoded, PairTokenizer, TextTokenizer, TokenizerError

MOST_AT_ONCE = 4 << 20  # 4 MiB of texts: `tokenizers` takes up to 290 times as much
OF_SPAN = {"bio": "B-", "bioes": "S-", "none": ""}  # the beginning of the tag of a span with one token
MOST_DIGITS = 10  # Python refuses to read thousands
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
        encoders: Mapping[str, Any] = {"chat": ChatEncoder, "pair": PairEncoder}
        texts = ((name, each) for name, each in features.items() if each.in_library)
        self._encoders = {name: encoders.get(each.kind, TextEncoder)(each, learned[name]) for name, each in texts}
        self._labels = {name: each for name, each in features.items() if isinstance(each, TokenLabels)}
        self._columns = columns

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, Faults]:
        """Adds columns of ids and parts, empty for rows at fault, found by halves; also returns the faults."""
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
            faults = {row: replace(fault, column=self._columns[name]) for row, fault in wrong.items()} | faults
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
            except TextError as error:
                rows.append([])
                faults[number] = Fault(error.reason, error.message)
        return {"": pa.array(rows, pa.list_(pa.int64()))}, faults


def _strings(column: pa.Array) -> list[Any]:
    return column.cast(pa.list_(pa.string()) if pa.types.is_list(column.type) else pa.string()).to_pylist()  # type: ignore[no-any-return]


def _lists(rows: Ragged) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(rows.splits, pa.int32()), pa.array(rows.values))


class Span(NamedTuple):
    """A labelled part of a text: code points from `start` to before `end`."""

    start: int
    end: int
    label: str
    number: int  # its place in the row, from 1


def spread(tag: str, pieces: int, scheme: str) -> list[str]:
    """Returns the tags of the pieces of one tagged thing: together they say the same as the tag."""
    if pieces < 2 or scheme == "none" or tag == OUTSIDE:
        return [tag] * pieces
    start, name = tag[:2], tag[2:]
    first, last = "B-" if start in ("B-", "S-") else "I-", "E-" if start in ("E-", "S-") else "I-"
    return [f"{each}{name}" for each in (first, *["I-"] * (pieces - 2), last)]


def check_sequence(tags: Sequence[str], scheme: str) -> None:
    """Checks the order of tags. Raises: TextError: a thing goes on that has not begun, or in BIOES has no end."""
    if scheme == "none":
        return
    current: str | None = None  # the thing that may go on
    for number, tag in enumerate(tags, 1):
        start, name = tag[:2], tag[2:]
        goes_on = start in ("I-", "E-")
        if (goes_on and name != current) or (not goes_on and current is not None and scheme == "bioes"):
            before = tags[number - 2] if number > 1 else "the beginning"
            raise _disorder(f"word {number} has the tag {tag} after {before}", scheme)
        current = name if start in ("B-", "I-") else None
    if current is not None and scheme == "bioes":
        raise _disorder(f"word {len(tags)}, the last, has the tag {tags[-1]}", scheme)


def _disorder(what: str, scheme: str) -> TextError:
    return TextError("tags_out_of_order", f"{what}, against `scheme: {scheme}`; `scheme: none` takes any order")


class Labeller:
    """Labels the tokens of one text after another; may be called from several threads."""

    def __init__(self, options: TokenLabels, words: Callable[[str], Iterable[Any]] | None = None) -> None:
        """Takes a function that cuts a text, if the tokenizer's only word is the whole text."""
        self._options, self._cut = options, words
        self._ids = {tag: id_ for id_, tag in enumerate(options.classes or ())}

    def __call__(self, text: Any, encoding: Any, cell: Any) -> list[int] | Fault:
        """Returns a label for each token of the encoding of a text, or of its words.

        `cell` is a list with the tag of each word, or a JSON list of spans; an optional row without it has no labels.
        """
        labels = [self._options.ignore] * len(encoding.ids)
        if self._options.optional and not cell:
            return labels
        tagged = self._by_span if self._options.spans else self._by_word
        try:
            for tag, tokens in tagged(text, encoding, cell):
                for token, each in zip(tokens, spread(tag, len(tokens), self._options.scheme), strict=True):
                    labels[token] = self._ids[each]
        except TextError as error:
            return Fault(error.reason, error.message)
        return labels

    def _by_word(
        self, words: Sequence[str], encoding: Any, tags: Sequence[bytes]
    ) -> Iterable[tuple[str, Sequence[int]]]:
        if len(words) != len(tags):
            raise TextError("unequal_lists", f"the text has {count(len(words), 'word')}, and {count(len(tags), 'tag')}")
        named = [self._named(tag.decode(), number) for number, tag in enumerate(tags, 1)]
        check_sequence(named, self._options.scheme)
        pieces = defaultdict[int, list[int]](list)
        for token, word in enumerate(encoding.word_ids):
            pieces[word].append(token)
        most = 1 if self._options.label == "first" else None
        return [(tag, pieces[word][:most]) for word, tag in enumerate(named) if word in pieces]

    def _named(self, tag: str, word: int) -> str:
        """Returns the class of a name, or of its id."""
        if tag in self._ids:
            return tag
        if tag.isdecimal() and len(tag) < MOST_DIGITS and int(tag) < len(self._ids):
            return (self._options.classes or ())[int(tag)]
        raise TextError("unknown_tag", f"word {word} has a tag that is neither one of `classes` nor its id: add it")

    def _by_span(self, text: str, encoding: Any, spans: bytes) -> list[tuple[str, list[int]]]:
        """Returns each span's tag and tokens to label, and those outside of spans."""
        ordered = sorted(self._span(number, each, len(text)) for number, each in enumerate(json.loads(spans), 1))
        for before, span in zip(ordered, ordered[1:], strict=False):
            if span.start < before.end:
                raise _bad_span(span.number, f"overlaps span {before.number}")
        places = spans_of_tokens(text, encoding.offsets, ordered)
        words = encoding.word_ids
        if self._cut is not None:  # a token with white space first is of the next word
            starts = [start for _, (start, _) in self._cut(text)]
            words = [bisect_right(starts, end - len(text[start:end].lstrip())) for start, end in encoding.offsets]
        tokens: list[list[int]] = [[] for _ in ordered]
        outside = list[tuple[str, list[int]]]()
        known: tuple[int | None, int | None] = (None, None)
        for token, (word, place) in enumerate(zip(words, places, strict=True)):
            is_further, known = word is not None and known == (word, place), (word, place)
            if is_further and self._options.label == "first":
                continue
            if place is None:
                outside.append((OUTSIDE, [token]))
            else:
                tokens[place].append(token)
        for span, own in zip(ordered, tokens, strict=True):
            if not own:
                raise _bad_span(span.number, "holds no token of its own")
        start = OF_SPAN[self._options.scheme]
        return [*((start + span.label, each) for span, each in zip(ordered, tokens, strict=True)), *outside]

    def _span(self, number: int, given: Mapping[str, Any] | Sequence[Any], length: int) -> Span:
        named = [*self._options.named.values()]
        fields = given if isinstance(given, Mapping) else {name: each for (name, *_), each in zip(named, given)}  # noqa: B905
        start, end, label = (next((fields[name] for name in names if name in fields), None) for names in named)
        if type(start) is not int or type(end) is not int or type(label) is not str:
            raise _bad_span(number, "should have whole numbers `start` and `end`, and a text `label`; `fields` renames")
        if not 0 <= start <= end <= length:
            raise _bad_span(number, f"is from {start} to {end}, outside the text of {count(length, 'character')}")
        if OF_SPAN[self._options.scheme] + label not in self._ids:
            raise TextError("unknown_tag", f"span {number} has a label that `classes` lacks: add its tags")
        return Span(start, end, label, number)


def _bad_span(number: int, what: str) -> TextError:
    return TextError("malformed_span", f"span {number} {what}")


def spans_of_tokens(text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[int | None]:
    """Returns the first of ascending spans that each token overlaps, but for outer white space; None outside."""
    ends, found = [span.end for span in spans], list[int | None]()
    for start, end in offsets:
        piece = text[start:end]
        if inner := piece.strip():
            start += len(piece) - len(piece.lstrip())
            place, reach = bisect_right(ends, start), start + len(inner)
        else:
            place, reach = bisect_right(ends, end), start
        found.append(place if place < len(spans) and spans[place].start < reach else None)
    return found
