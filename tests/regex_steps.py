"""Counts the steps of a regular expression: the characters that a matcher which backtracks, as Python's does, looks at.

The steps are those of its parse tree, so they are the same on every machine, where a time is not.

>>> steps("a*b", "aaa")  # from each place it goes to the end, and back
20
"""

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]  # the tree that `re` itself compiles
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

Then = Callable[[int], int | None]
"""Matches the rest of a pattern from a position; returns where the match ends, or None."""
Matcher = Callable[[int, Then], int | None]

CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    op.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    op.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


class TooManyStepsError(Exception):
    """The matcher has taken more steps than it may."""


class Counter:
    """Matches one pattern with one text."""

    def __init__(self, pattern: str, flags: int, text: str, most: float) -> None:
        self._groups: dict[int, tuple[int, int]] = {}
        self.begin(text, most)
        self._ignores_case = bool(flags & re.IGNORECASE)
        self._multiline, self._dotall = bool(flags & re.MULTILINE), bool(flags & re.DOTALL)
        tree = parser.parse(pattern, flags & ~re.UNICODE)
        self._ignores_case |= bool(tree.state.flags & re.IGNORECASE)
        self._match = self._sequence(list(tree))

    def begin(self, text: str, most: float) -> None:
        """Begins to count anew, with another text."""
        self.steps, self.text, self._most = 0, text, most
        self._groups.clear()

    def search(self) -> list[int]:
        """Finds the ends of all matches that are not empty, as `sub` does."""
        position, ends = 0, []
        while position < len(self.text):
            end = self.match(position)
            is_empty = end is None or end == position
            ends += [] if end is None or is_empty else [end]
            position = position + 1 if is_empty else ends[-1]
        return ends

    def find(self, position: int) -> None:
        """Finds the first match from a position on."""
        while position <= len(self.text) and self.match(position) is None:
            position += 1

    def match(self, position: int, then: Then = lambda end: end) -> int | None:
        """Matches at a position; returns the end, or None. Each repeat is a call inside another."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 100 * len(self.text))
        try:
            return self._match(position, then)
        finally:
            sys.setrecursionlimit(limit)

    def fullmatch(self) -> None:
        """Matches the whole text, as `fullmatch` does; `match` takes no more steps."""
        self.match(0, lambda end: end if end == len(self.text) else None)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._most:
            raise TooManyStepsError

    def _sequence(self, items: list[Any]) -> Matcher:
        matchers = [self._item(*item) for item in items]

        def match(position: int, then: Then, number: int = 0) -> int | None:
            if number == len(matchers):
                return then(position)
            return matchers[number](position, lambda end: match(end, then, number + 1))

        return match

    def _item(self, kind: Any, value: Any) -> Matcher:
        if (fits := self._character(kind, value)) is not None:
            return self._one(fits)
        match kind:
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                return self._repeat(kind, *value)
            case op.SUBPATTERN:
                return self._group(value[0], self._sequence(list(value[3])))
            case op.ATOMIC_GROUP:
                return self._atomic(self._sequence(list(value)))
            case op.BRANCH:
                branches = [self._sequence(list(branch)) for branch in value[1]]
                return self._first(branches)
            case op.ASSERT | op.ASSERT_NOT:
                return self._look(kind is op.ASSERT, *value)
            case op.AT:
                return lambda position, then: then(position) if self._is_at(value, position) else None
            case op.GROUPREF:
                return self._again(value)
        raise NotImplementedError(kind)

    def _character(self, kind: Any, value: Any) -> Callable[[str], bool] | None:
        """The test of one character; None for what is more, or less, than one."""
        match kind:
            case op.LITERAL:
                return lambda char: self._same(char, chr(value))
            case op.NOT_LITERAL:
                return lambda char: not self._same(char, chr(value))
            case op.ANY:
                return lambda char: self._dotall or char != "\n"
            case op.IN:
                negated = value[0][0] is op.NEGATE
                tests = [self._member(*member) for member in value[negated:]]
                return lambda char: any(test(char) for test in tests) != negated
        return None

    def _member(self, kind: Any, value: Any) -> Callable[[str], bool]:
        if kind is op.CATEGORY:
            return CATEGORIES[value]
        low, high = value if kind is op.RANGE else (value, value)
        return lambda char: any(low <= ord(form) <= high for form in self._forms(char))

    def _forms(self, char: str) -> set[str]:
        return {char, *(form for form in (char.lower(), char.upper()) if self._ignores_case and len(form) == 1)}

    def _same(self, char: str, other: str) -> bool:
        return other in self._forms(char)

    def _one(self, fits: Callable[[str], bool]) -> Matcher:
        def match(position: int, then: Then) -> int | None:
            self._step()
            return then(position + 1) if position < len(self.text) and fits(self.text[position]) else None

        return match

    def _repeat(self, kind: Any, least: int, most: Any, items: Any) -> Matcher:
        if len(items) == 1 and (fits := self._character(*items[0])) is not None:
            return self._run(kind, least, most, fits)
        inner = self._sequence(list(items))

        def more(position: int, count: int, then: Then) -> int | None:
            if count >= most:
                return None
            return inner(position, lambda end: None if end == position else match(end, then, count + 1))

        def match(position: int, then: Then, count: int = 0) -> int | None:
            if count < least:
                return more(position, count, then)
            ways = [lambda: more(position, count, then), lambda: then(position)]
            for way in reversed(ways) if kind is op.MIN_REPEAT else ways:
                if (end := way()) is not None:
                    return end
            return None

        return self._atomic(match) if kind is op.POSSESSIVE_REPEAT else match

    def _run(self, kind: Any, least: int, most: Any, fits: Callable[[str], bool]) -> Matcher:
        """A repeated character, without a call for each."""

        def match(position: int, then: Then) -> int | None:
            longest = position
            limit = min(len(self.text), position + int(most)) if most is not op.MAXREPEAT else len(self.text)
            if kind is op.MIN_REPEAT:
                end: int | None = None
                while end is None:
                    end = then(longest) if longest - position >= least else None
                    self._step()
                    if end is None and not (longest < limit and fits(self.text[longest])):
                        return None
                    longest += 1
                return end
            while longest < limit and fits(self.text[longest]):
                self._step()
                longest += 1
            self._step()
            shortest = max(longest, position + least) if kind is op.POSSESSIVE_REPEAT else position + least
            for place in range(longest, shortest - 1, -1):
                if (end := then(place)) is not None:
                    return end
            return None

        return match

    def _first(self, branches: list[Matcher]) -> Matcher:
        def match(position: int, then: Then) -> int | None:
            for branch in branches:
                if (end := branch(position, then)) is not None:
                    return end
            return None

        return match

    def _group(self, number: int | None, inner: Matcher) -> Matcher:
        def match(position: int, then: Then) -> int | None:
            def close(end: int) -> int | None:
                if number is not None:
                    self._groups[number] = position, end
                return then(end)

            return inner(position, close)

        return match

    def _again(self, number: int) -> Matcher:
        def match(position: int, then: Then) -> int | None:
            start, end = self._groups.get(number, (0, 0))
            self.steps += end - start
            is_same = self.text.startswith(self.text[start:end], position)
            return then(position + end - start) if is_same else None

        return match

    def _atomic(self, inner: Matcher) -> Matcher:
        def match(position: int, then: Then) -> int | None:
            end = inner(position, lambda end: end)
            return None if end is None else then(end)

        return match

    def _look(self, wanted: bool, direction: int, items: Any) -> Matcher:
        inner, width = self._sequence(list(items)), items.getwidth()[0] if direction < 0 else 0

        def match(position: int, then: Then) -> int | None:
            start = position - width
            found = start >= 0 and inner(start, lambda end: end) is not None
            return then(position) if found == wanted else None

        return match

    def _is_at(self, where: Any, position: int) -> bool:
        text, length = self.text, len(self.text)
        if where in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return position == 0 or (
                self._multiline and where is op.AT_BEGINNING and text[position - 1 : position] == "\n"
            )
        if where is op.AT_END_STRING:
            return position == length
        if where is op.AT_END:
            at_line = self._multiline and text[position : position + 1] == "\n"
            return position == length or at_line or (position == length - 1 and text.endswith("\n"))
        words = [
            0 <= place < length and (text[place].isalnum() or text[place] == "_") for place in (position - 1, position)
        ]
        return (words[0] != words[1]) == (where is op.AT_BOUNDARY)


@lru_cache(maxsize=1)
def _counter(pattern: str, flags: int) -> Counter:
    return Counter(pattern, flags, "", float("inf"))


def steps(pattern: str | re.Pattern[Any], text: str, *, anchored: bool = False, most: float = float("inf")) -> int:
    """Counts the steps of finding all matches in a text, or, `anchored`, of matching the whole of it.

    Raises:
        TooManyStepsError: there are more than `most`.
    """
    source, flags = (pattern.pattern, pattern.flags) if isinstance(pattern, re.Pattern) else (pattern, 0)
    counter = _counter(source.decode("latin-1") if isinstance(source, bytes) else source, flags)
    counter.begin(text, most)
    counter.fullmatch() if anchored else counter.search()
    return counter.steps
