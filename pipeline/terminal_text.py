r"""Makes text from data safe to print on a terminal: control characters are shown escaped.

A file's name, a class or an exception's message may hold sequences that clear the screen, set its title, or reverse the
writing direction. Line ends and tabs stay; invisible characters become visible.

>>> printable("cat\x1b[2J\u202etxt")
'cat\\x1b[2J\\u202etxt'
"""

import unicodedata
from typing import TextIO

from recordmill.pipeline.redaction import redacted

COMMAND = "recordmill"
KEPT = "\n\t"
STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories: control, format (direction, zero width), surrogate, line and paragraph separators."""


def printable(text: str) -> str:
    """Escapes each control character of a text; idempotent."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def count(number: int, noun: str) -> str:
    """Formats a number of things.

    >>> count(1, "shard"), count(1200, "shard")
    ('1 shard', '1,200 shards')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def say(message: str, file: TextIO) -> None:
    """Prints a message, each line after the command's name, without the secrets of URLs."""
    for line in redacted(message).split("\n"):
        print(f"{COMMAND}: {printable(line)}", file=file)


def _shown(character: str) -> str:
    steers = character not in KEPT and unicodedata.category(character) in STEERING
    return ascii(character)[1:-1] if steers else character
