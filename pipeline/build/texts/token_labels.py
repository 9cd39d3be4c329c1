"""Labels of a text's tokens: from a tag for each of its words, or from spans of its characters.

Tokens and their places are encodings of the package `tokenizers`. Rows at fault become rejects, whose messages hold
neither text nor unknown tags.

>>> spread("B-PER", 3, "bio"), spread("S-PER", 3, "bioes")
(['B-PER', 'I-PER', 'I-PER'], ['B-PER', 'I-PER', 'E-PER'])
"""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.spec.features.token_labels import TokenLabels
from recordmill.transforms.contract.kinds.text import OUTSIDE

OF_SPAN = {"bio": "B-", "bioes": "S-", "none": ""}  # the beginning of the tag of a span with one token
MOST_DIGITS = 10  # Python refuses to read thousands


class TagsError(Exception):
    """A row's tags cannot be stored."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(reason, message)


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
    """Checks the order of tags. Raises: TagsError: a thing goes on that has not begun, or in BIOES has no end."""
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


def _disorder(what: str, scheme: str) -> TagsError:
    return TagsError("tags_out_of_order", f"{what}, against `scheme: {scheme}`; `scheme: none` takes any order")


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
        except TagsError as error:
            return error.fault
        return labels

    def _by_word(
        self, words: Sequence[str], encoding: Any, tags: Sequence[bytes]
    ) -> Iterable[tuple[str, Sequence[int]]]:
        """Returns each word's tag and tokens to label."""
        if len(words) != len(tags):
            raise TagsError("unequal_lists", f"the text has {count(len(words), 'word')}, and {count(len(tags), 'tag')}")
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
        raise TagsError("unknown_tag", f"word {word} has a tag that is neither one of `classes` nor its id: add it")

    def _by_span(self, text: str, encoding: Any, spans: bytes) -> list[tuple[str, list[int]]]:
        """Returns each span's tag and tokens to label, and those outside of spans."""
        ordered = sorted(self._span(number, each, len(text)) for number, each in enumerate(json.loads(spans), 1))
        for before, span in zip(ordered, ordered[1:], strict=False):
            if span.start < before.end:
                raise _bad_span(span.number, f"overlaps span {before.number}")
        places = spans_of_tokens(text, encoding.offsets, ordered)
        tokens: list[list[int]] = [[] for _ in ordered]
        outside = list[tuple[str, list[int]]]()
        known: tuple[int | None, int | None] = (None, None)
        for token, (word, place) in enumerate(zip(self._words(text, encoding), places, strict=True)):
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

    def _words(self, text: str, encoding: Any) -> Sequence[int | None]:
        """Returns the number of each token's word; a token with white space first is of the next word."""
        if self._cut is None:
            return encoding.word_ids  # type: ignore[no-any-return]
        starts = [start for _, (start, _) in self._cut(text)]
        return [bisect_right(starts, end - len(text[start:end].lstrip())) for start, end in encoding.offsets]

    def _span(self, number: int, given: Mapping[str, Any] | Sequence[Any], length: int) -> Span:
        named = [*self._options.named.values()]
        fields = given if isinstance(given, Mapping) else {name: each for (name, *_), each in zip(named, given)}  # noqa: B905
        start, end, label = (next((fields[name] for name in names if name in fields), None) for names in named)
        if type(start) is not int or type(end) is not int or type(label) is not str:
            raise _bad_span(number, "should have whole numbers `start` and `end`, and a text `label`; `fields` renames")
        if not 0 <= start <= end <= length:
            raise _bad_span(number, f"is from {start} to {end}, outside the text of {count(length, 'character')}")
        if OF_SPAN[self._options.scheme] + label not in self._ids:
            raise TagsError("unknown_tag", f"span {number} has a label that `classes` lacks: add its tags")
        return Span(start, end, label, number)


def _bad_span(number: int, what: str) -> TagsError:
    return TagsError("malformed_span", f"span {number} {what}")


def spans_of_tokens(text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[int | None]:
    """Returns the first span that each token overlaps without white space at its ends; None for a token outside.

    A token of white space alone is in a span that goes on at both sides. `spans` ascend.
    """
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
