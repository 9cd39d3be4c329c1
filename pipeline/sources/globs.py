r"""Globs over paths and URLs, with one meaning on every filesystem.

In one part of a path `*` is any run of characters, `?` is one, `[abc]`, `[a-z]` and `[!abc]` are one of a set; a part
`**` is any number of folders, none included, and at the end every file below. A wildcard at the start of a part does
not match a dot: hidden files and folders are left out unless the pattern itself writes the dot.

    >>> bool(glob_pattern("data/**/*.jsonl").fullmatch("data/a.jsonl"))
    True
"""

import re
from collections.abc import Iterable
from itertools import groupby

WILDCARD = re.compile(r"[*?\[]")
ESCAPED = re.compile(r"\[([*?\[])\]")
LITERAL = re.compile(r"(?:[^*?\[]|\[[*?\[]\])*")
TOKEN = re.compile(r"\[(!?)(\]?[^\]]*)\]|.", re.DOTALL)
MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)
NOT_HIDDEN = r"(?!\.)"
ANY = "[^/]*"
FOLDERS = rf"(?:{NOT_HIDDEN}[^/]++/)*"
FIXED = "\0"
"""Stands in a pattern for a text to be found, as `templates` does: what matches around it decides what it is."""


def is_glob(path: str) -> bool:
    """Whether the path holds a wildcard."""
    return WILDCARD.search(path) is not None


def is_literal(pattern: str) -> bool:
    """Whether one path alone, `literal_prefix`, can match."""
    return LITERAL.fullmatch(pattern) is not None


def escape(path: str) -> str:
    """Makes a pattern that matches this path alone."""
    return WILDCARD.sub(r"[\g<0>]", path)


def literal_prefix(pattern: str) -> str:
    """Gives the text that every match begins with, escapes undone."""
    return ESCAPED.sub(r"\1", LITERAL.match(pattern)[0])  # type: ignore[index]  # it matches the empty text too


def folder_prefix(pattern: str) -> str:
    """Gives the folder, with its slash at the end, that every match lies below; '' for the working folder."""
    prefix = literal_prefix(pattern)
    return prefix[: prefix.rfind("/") + 1]


def depth(pattern: str) -> int | None:
    """Gives the most folders below `folder_prefix` that a match can lie in; None for no limit."""
    parts = pattern.split("/")
    return None if "**" in parts else len(parts) - 1 - folder_prefix(pattern).count("/")


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """Makes the regular expression whose full matches are the glob's.

    Each wildcard but the last takes the least that what follows it, up to the next one, allows, and never tries more: a
    later place would only leave less for the rest. So many wildcards cost no more than one after another.
    """
    *folders, last = pattern.split("/")
    parts = [FOLDERS if part == "**" else _part(part) + "/" for part in folders]
    parts += [FOLDERS, f"{NOT_HIDDEN}[^/]+"] if last == "**" else [_part(last)]
    return re.compile(_in_turn(parts, FOLDERS, is_fixed=FIXED in pattern), re.DOTALL)


def _part(part: str) -> str:
    guard = NOT_HIDDEN if WILDCARD.match(part) and not ESCAPED.match(part) else ""
    return guard + _in_turn(map(_translate, TOKEN.finditer(part)), ANY, is_fixed=FIXED in part)


def _in_turn(pieces: Iterable[str], wildcard: str, *, is_fixed: bool) -> str:
    """Joins pieces of an expression, of which some are the wildcard; several of these in a row are one."""
    first, *others = _between(pieces, wildcard)
    if not others:
        return first
    *middle, last = others
    lazy = "".join(f"{wildcard}{piece}" if is_fixed else f"(?>{wildcard}?{piece})" for piece in middle)
    return f"{first}{lazy}{wildcard}{last}"


def _between(pieces: Iterable[str], wildcard: str) -> list[str]:
    """Joins the pieces before, between and behind the wildcards."""
    runs = [(is_wildcard, "".join(run)) for is_wildcard, run in groupby(pieces, wildcard.__eq__)]
    ends = [""] if not runs or runs[0][0] else []
    joined = [*ends, *(text for is_wildcard, text in runs if not is_wildcard)]
    return [*joined, ""] if runs and runs[-1][0] else joined


def _translate(token: re.Match[str]) -> str:
    text, negated, members = token[0], token[1], token[2]
    if members:
        return _set(bool(negated), members)
    return {"*": ANY, "?": "[^/]"}.get(text) or re.escape(text)


def _set(negated: bool, members: str) -> str:
    """One character of a set; a range that runs backwards holds none."""
    parts = []
    for first, last, single in MEMBER.findall(members):
        if single or first <= last:
            parts.append(re.escape(single) or f"{re.escape(first)}-{re.escape(last)}")
    if not parts:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"
