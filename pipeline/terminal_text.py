r"""Text of data on a terminal: what would steer the screen is shown as an escape, so that it steers nothing.

A file's name, a class or an exception's words may hold sequences that clear the screen, set its title, or turn the
direction of what follows. Line ends and tabs stay; a word that is drawn with invisible characters shows them.

>>> printable("cat\x1b[2J\u202etxt")
'cat\\x1b[2J\\u202etxt'
"""

import unicodedata
from typing import TextIO

from recordmill.pipeline.redaction import redacted

COMMAND = "recordmill"
KEPT = "\n\t"
STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories: control, format (of direction, of no width), half a pair, the ends of lines and paragraphs."""


def printable(text: str) -> str:
    """Gives a text with each character that steers as its escape; of what it gave, the same."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def say(message: str, file: TextIO) -> None:
    """Prints a message to the user, each line behind the command's name, without secrets of URLs."""
    for line in redacted(message).split("\n"):
        print(f"{COMMAND}: {printable(line)}", file=file)


def _shown(character: str) -> str:
    steers = character not in KEPT and unicodedata.category(character) in STEERING
    return ascii(character)[1:-1] if steers else character
