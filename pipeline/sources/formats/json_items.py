"""The lists in one large JSON object, an item at a time: memory holds a window of the text, and one item.

>>> from io import BytesIO
>>> list(json_items(BytesIO(b'{"info": {}, "images": [{"id": 1}, {"id": 2}]}')))
[('images', {'id': 1}), ('images', {'id': 2})]
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

READ_BYTES = 1 << 20  # 1 MiB
MOST_CHARACTERS = 64 << 20  # of one item
SPACE = re.compile(r"[ \t\n\r]*")
DECODER = json.JSONDecoder()


class JsonDamageError(ValueError):
    """The text is no JSON object; the message says why, and where."""


def json_items(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Yields each item of the lists in a JSON object, with the list's key; other values are left out.

    Raises:
        JsonDamageError: it is no JSON object in UTF-8, is nested too deeply, or has an item of over 64 Mi characters.
        OSError: the file cannot be read.
    """
    window = _Window(file)
    try:
        yield from _items(window)
    except json.JSONDecodeError as error:
        raise JsonDamageError(f"{error.msg}, character {window.passed + error.pos + 1:,}") from None
    except UnicodeDecodeError:
        raise JsonDamageError("it is not UTF-8") from None
    except RecursionError:
        raise JsonDamageError("it is nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python converts
        raise JsonDamageError(str(error)) from None


def _items(window: "_Window") -> Iterator[tuple[str, Any]]:
    window.take("{", "no object")
    closing = window.take_if("}")
    while not closing:
        key = window.value()
        window.take(":", "expecting ':'")
        if not window.take_if("["):
            window.value()
        elif not window.take_if("]"):
            yield key, window.value()
            while not window.take_if("]"):
                window.take(",", "expecting ',' or ']'")
                yield key, window.value()
        closing = window.take_if("}")
        if not closing:
            window.take(",", "expecting ',' or '}'")


class _Window:
    """The text from where it is read on."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decode = file, codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text, self._at, self._ended = "", 0, False
        self.passed = 0
        """The number of characters before the window."""

    def value(self) -> Any:
        """Reads a value. Raises: json.JSONDecodeError: what follows is no value."""
        while True:
            self._skip()
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            if end + 2 < len(self._text) or not self._more():  # a number may go on behind the window: `1e+`
                self._at = end
                return value

    def take_if(self, sign: str) -> bool:
        """Passes a sign, if it is the next one."""
        self._skip()
        found = self._text.startswith(sign, self._at)
        self._at += found
        return found

    def take(self, sign: str, wrong: str) -> None:
        """Passes a sign. Raises: json.JSONDecodeError: another is the next one."""
        if not self.take_if(sign):
            raise json.JSONDecodeError(wrong, self._text, self._at)

    def _skip(self) -> None:
        self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        while self._at == len(self._text) and self._more():
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]

    def _more(self) -> bool:
        """Reads more, at least as much as the window holds; False at the end, and where an item is too long."""
        rest = len(self._text) - self._at
        if self._ended or rest > MOST_CHARACTERS:
            return False
        data = self._file.read(max(READ_BYTES, rest))
        self._ended, text = not data, self._decode(data, final=not data)
        if self._ended:
            return False  # the window stays as it is
        self.passed += self._at
        self._text, self._at = self._text[self._at :] + text, 0
        return True
