"""Finds the encoding of files of text by their first bytes.

>>> find_encoding("a.csv", ["Köln".encode("cp1252")])
('cp1252', 'not UTF-8; as cp1252 a word is Köln; --encoding names another')
"""

import codecs
import re
from collections.abc import Sequence
from contextlib import suppress

from recordmill.pipeline.errors import UserError

MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
         codecs.BOM_UTF16_BE: "utf-16"}  # fmt: skip
UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes that are no character of cp1252."""
HIGH = re.compile(rb"[\x80-\xff]")
WORD = re.compile(rb"[^\s,;\"']+")


def find_encoding(path: str, heads: Sequence[bytes]) -> tuple[str, str]:
    """Finds the encoding of some files by their first bytes, and why; `utf-8` needs no reason.

    Raises: UserError: the text is neither Unicode nor, by its bytes, cp1252; the message names `path`.
    """
    for head in heads:
        if mark := next((mark for mark in MARKS if head.startswith(mark)), None):
            return MARKS[mark], "by the byte order mark"
        for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            if 2 * head[start::2].count(0) > len(head[start::2]):
                return name, "every other byte is 0"
    others = [head for head in heads if not _is_utf8(head)]
    if not others:
        return "utf-8", ""
    head = others[0]
    if UNDEFINED.search(head) or 3 * len(HIGH.findall(head)) > len(re.findall(rb"[A-Za-z]", head)):
        message = "is neither UTF-8 nor, by its bytes, cp1252: name its encoding, such as --encoding cp1251 or gb18030"
        raise UserError(f"{path} {message}")
    word = min(filter(HIGH.search, WORD.findall(head)), key=len).decode("cp1252")
    return "cp1252", f"not UTF-8; as cp1252 a word is {word}; --encoding names another"


def _is_utf8(head: bytes) -> bool:
    """Whether text is UTF-8; damaged bytes among more letters of UTF-8 do not change that."""
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(head)
        return True
    text = head.decode("utf-8", "surrogateescape")
    damaged = sum("\udc80" <= letter <= "\udcff" for letter in text)
    return 2 * damaged <= sum(letter > "\x7f" for letter in text)
