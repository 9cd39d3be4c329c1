"""Ids of a text back to the text, as far as its tokenizer can be undone.

Cleaning, unknown words and a cut at `max_length` stay: the text is what the model reads, not what the source held.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SPACE = "▁"  # U+2581, as SentencePiece and our characters write a space
CONTINUED = "##"
"""The beginning of a WordPiece that goes on with a word."""
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Text:
    """A text of a record."""

    ids: tuple[int, ...]
    """As they are stored, with begin and end, without padding."""
    words: tuple[str, ...] | None
    """The word, piece or character of each id; None where ids are hashes."""
    text: str | None
    """The words joined as their tokenizer cut them, without begin and end; None where ids are hashes."""
    length: int | None = None
    """The number of ids before the cut at `max_length`, where the feature keeps it."""

    def __str__(self) -> str:
        """Returns the text; of hashes the ids."""
        return " ".join(map(str, self.ids)) if self.text is None else self.text


def _wordpieces(pieces: Sequence[str]) -> str:
    return " ".join(pieces).replace(f" {CONTINUED}", "")


def _spaced(pieces: Sequence[str]) -> str:
    """Joins characters, or SentencePieces, some of which may be bytes."""
    text = "".join(pieces)
    if BYTE.search(text):
        text = re.sub(f"(?:{BYTE.pattern})+", lambda match: _bytes(BYTE.findall(match[0])), text)
    return text.replace(SPACE, " ").strip(" ")


def _bytes(digits: Sequence[str]) -> str:
    return bytes.fromhex("".join(digits)).decode("utf-8", "replace")


def _of_bytes(names: Sequence[str]) -> str:
    return _bytes([name[3:5] for name in names])


JOINED: Mapping[str, Callable[[Sequence[str]], str]] = {
    "words": " ".join,
    "whitespace": " ".join,
    "characters": _spaced,
    "bytes": _of_bytes,
    "wordpiece": _wordpieces,
    "sentencepiece": _spaced,
}
"""The function that joins a tokenizer's words to a text."""
