"""JSON documents, read forward through a window: memory grows with one item, not with the document.

>>> import io
>>> list(json_items(io.BytesIO(b'{"images": [1, 2], "info": {}}')))
[('images', 1), ('images', 2)]
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.sources.encoded import Readable
from recordmill.pipeline.sources.paths import listed
from recordmill.transforms.base.bounds import JSON_ITEM

READ_BYTES = 1 << 20  # 1 MiB
MOST_CHARACTERS = 64 << 20  # in one item
SPACE = re.compile(r"[ \t\n\r]*")
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
DECODER = json.JSONDecoder()
SKIMMER = json.JSONDecoder(parse_int=str)  # of any digits, at half the speed
DAMAGE = "\x01"  # invalid in JSON, also in a string
Kept = Sequence[Mapping[str, str]]
"""The names of values to keep, by key, in the object that each step of a path lies in."""


class JsonDamageError(ValueError):
    """Raised for text that is not JSON of the wanted form; the message says why and where."""


class Window:
    """A document's text from the reading position on; as Latin-1, `at` counts bytes, and any bytes are text."""

    def __init__(self, file: Readable | None, encoding: str = "utf-8-sig", text: str = "") -> None:
        """Takes a file, or the whole text."""
        self._file, self._decode = file, codecs.getincrementaldecoder(encoding)().decode
        self._text, self._at, self._ended = text, 0, file is None
        self.passed = 0  # the number of characters before the window

    @property
    def at(self) -> int:
        """The reading position, in characters."""
        self._skip()
        return self.passed + self._at

    def value(self) -> Any:
        """Reads a value. Raises: json.JSONDecodeError: the text is not a value."""
        return self._next(DECODER.raw_decode)[0]

    def text(self) -> str:
        """Reads a value's text; a damaged list or object ends at its closing bracket. Raises: json.JSONDecodeError."""
        self._skip()
        if not self._text.startswith(("[", "{"), self._at):
            start = self._next(_skimmed)[1]
            return self._text[start : self._at]
        end = _end(self._text, self._at)
        is_good, end = end is not None, end or self._closing()
        self._check(end)
        text, self._at = self._text[self._at : end], end
        return text if is_good or _end(text, 0) else text.replace("\n", DAMAGE)

    def skip(self) -> None:
        """Skips a value, item by item if it is long."""
        if self.take_if("["):
            for _ in self.items():
                self._next(_skimmed)
        elif self.take_if("{"):
            for _ in self.members():
                self.skip()
        else:
            self._next(_skimmed)

    def items(self, bracket: str = "]") -> Iterator[None]:
        """Yields before each item of a list, behind its bracket; the caller reads the item."""
        is_closed = self.take_if(bracket)
        while not is_closed:
            yield
            is_closed = self.take_if(bracket)
            if not is_closed:
                self.take(",", f"expecting ',' or '{bracket}'")

    def members(self) -> Iterator[Any]:
        """Yields each key of an object, behind its bracket; the caller reads the value."""
        for _ in self.items("}"):
            key = self.value()
            self.take(":", "expecting ':'")
            yield key

    def take_if(self, sign: str) -> bool:
        """Skips a sign if it comes next."""
        self._skip()
        found = self._text.startswith(sign, self._at)
        self._at += found
        return found

    def take(self, sign: str, wrong: str) -> None:
        """Skips a sign. Raises: json.JSONDecodeError: it does not come next."""
        if not self.take_if(sign):
            raise json.JSONDecodeError(wrong, self._text, self._at)

    def end(self) -> None:
        """Checks that nothing follows. Raises: json.JSONDecodeError."""
        self._skip()
        if self._at < len(self._text):
            raise json.JSONDecodeError("text after the document", self._text, self._at)

    def _next(self, decode: Callable[[str, int], tuple[Any, int]]) -> tuple[Any, int]:
        """Reads a value; returns it and its start in the window."""
        while True:
            self._skip()
            try:
                value, end = decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            if end + 2 < len(self._text) or not self._more():  # a number may continue after the window: `1e+`
                self._check(end)
                start, self._at = self._at, end
                return value, start

    def _closing(self) -> int:
        """Finds the end of the list or object at the reading position. Raises: json.JSONDecodeError: it has none."""
        while True:
            level = 0
            for sign in BRACKETS.finditer(self._text, self._at):
                level += (sign[0] in "[{") - (sign[0] in "]}")
                if not level:
                    return sign.end()
            if not self._more():
                raise json.JSONDecodeError("a bracket is not closed", self._text, self._at)

    def _check(self, end: int) -> None:
        """Raises: JsonDamageError: the item from here to a character, or its beginning, has too many signs."""
        is_long = end - self._at > JSON_ITEM.most
        signs = sum(self._text.count(sign, self._at, end) for sign in ",:[{") if is_long else 0
        if signs > JSON_ITEM.most:
            raise JsonDamageError(JSON_ITEM.beyond(signs))

    def _skip(self) -> None:
        is_blank = True
        while is_blank:
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            is_blank = self._at == len(self._text) and self._more()

    def _more(self) -> bool:
        """Reads about what the window holds; False at the end, and after a too long item. Raises: JsonDamageError."""
        rest = len(self._text) - self._at
        if self._ended or self._file is None or rest > MOST_CHARACTERS:
            return False
        self._check(len(self._text))
        data = self._file.read(max(READ_BYTES, min(rest, JSON_ITEM.most)))
        self._ended, text = not data, self._decode(data, final=not data)
        if self._ended:
            return False  # keeps the window
        self.passed += self._at
        self._text, self._at = self._text[self._at :] + text, 0
        return True


def closed(text: str) -> tuple[str, bool]:
    """Cuts a document's beginning behind a bracket, and closes the others; tells whether nothing follows the document.

    >>> closed('{"rows": [{"n": 1}, {"n": ')
    ('{"rows": [{"n": 1}]}', True)

    Empty without a closed bracket.
    """
    level, end, rest = list[str](), 0, ""
    for sign in BRACKETS.finditer(text):
        if sign[0] in "[{":
            level.append("]" if sign[0] == "[" else "}")
        elif sign[0] in "]}" and level:
            level.pop()
            end, rest = sign.end(), "".join(reversed(level))
            if not level:
                break
    return text[:end] + rest, bool(level) or not text[end:].strip()


def _skimmed(text: str, start: int) -> tuple[Any, int]:
    """Parses a value that matters only by its end. Raises: json.JSONDecodeError, RecursionError."""
    try:
        return DECODER.raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a number with more digits than Python converts
        return SKIMMER.raw_decode(text, start)


def _end(text: str, start: int) -> int | None:
    """Returns the end of a value; None if it is damaged, cut off or nested too deeply."""
    with suppress(json.JSONDecodeError, RecursionError):
        return _skimmed(text, start)[1]
    return None


@contextmanager
def naming_place(window: Window, unit: str = "character") -> Iterator[None]:
    """Turns errors of a window into one that names the place. Raises: JsonDamageError."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise JsonDamageError(f"{error.msg}, {unit} {window.passed + error.pos + 1:,}") from None
    except UnicodeDecodeError:
        raise JsonDamageError("it is not UTF-8") from None
    except RecursionError:
        raise JsonDamageError("it is nested too deeply") from None
    except JsonDamageError:
        raise
    except ValueError as error:  # a number with more digits than Python converts
        raise JsonDamageError(str(error)) from None


def json_items(file: Readable) -> Iterator[tuple[str, Any]]:
    """Yields the items of each list in a JSON object, with the list's key; skips others. Raises: JsonDamageError."""
    window = Window(file)
    with naming_place(window):
        window.take("{", "no object")
        for key in window.members():
            if window.take_if("["):
                for _ in window.items():
                    yield key, window.value()
            else:
                window.value()


def elements(
    window: Window, steps: Sequence[str], kept: Kept, outer: dict[str, str], *, is_whole: bool = True
) -> Iterator[tuple[int, str]]:
    """Yields the position and text of each element of the list at `steps`, keys and a last `[]`.

    Adds the texts of kept values to `outer`, complete at the end. Inside an element of a whole document the list may be
    missing or null, and no kept value comes twice. Raises: JsonDamageError: another form.
    """
    key, *rest = steps
    if key == "[]" and not is_whole and window.take_if("null"):
        return
    if key == "[]":
        window.take("[", "no list")
        for _ in window.items():
            yield window.at, window.text()
        return
    window.take("{", f"no object with `{key}`")
    seen = list[str]()
    for found in map(_utf8, window.members()):
        if found in seen and (found == key or (found in kept[0] and not is_whole)):
            raise JsonDamageError(f"`{found}` comes twice")
        if found == key:
            yield from elements(window, rest, kept[1:], outer, is_whole=is_whole)
        elif found in kept[0]:
            outer[kept[0][found]] = window.text()
        else:
            window.skip()
        seen.append(found)
    if is_whole and key not in seen:
        raise JsonDamageError(f"no `{key}`; it has {listed(seen, 10)}{did_you_mean(key, seen)}")


def rows_of(text: str, steps: Sequence[str], kept: Kept, outer: Mapping[str, str]) -> Iterator[str]:
    """Yields the texts of an element's rows, with kept values added. Raises: JsonDamageError, json.JSONDecodeError."""
    if steps:
        inner, here = steps.index("[]") + 1, dict(outer)
        found = [*elements(Window(None, text=text), steps[:inner], kept, here, is_whole=False)]
        names = (name for level in kept[:inner] for name in level.values())  # as `keep` orders them: keys are digests
        here = {**outer, **{name: here[name] for name in names if name in here}}
        for _, element in found:
            yield from rows_of(element, steps[inner:], kept[inner:], here)
    elif outer and text.startswith("{"):
        first = ", ".join(f"{json.dumps(name)}: {value}" for name, value in outer.items())
        yield f"{{{first}{'' if text[1:].lstrip().startswith('}') else ', '}{text[1:]}"
    else:
        yield text


def _utf8(key: Any) -> str:
    """Decodes a key of a text as Latin-1; one with escapes may be decoded already."""
    try:
        return str(key).encode("latin-1").decode()
    except UnicodeError:
        return str(key)
