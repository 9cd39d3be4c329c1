r"""Globs over paths and URLs, with one meaning on every filesystem.

In one part of a path `*` is any run of characters, `?` is one, `[abc]`, `[a-z]` and `[!abc]` are one of a set; a part
`**` is any number of folders, none included, and at the end every file below. A wildcard at the start of a part does
not match a dot: hidden files and folders are left out unless the pattern itself writes the dot.

    >>> bool(glob_pattern("data/**/*.jsonl").fullmatch("data/a.jsonl"))
    True
"""

import re

WILDCARD = re.compile(r"[*?\[]")
ESCAPED = re.compile(r"\[([*?\[])\]")
LITERAL = re.compile(r"(?:[^*?\[]|\[[*?\[]\])*")
TOKEN = re.compile(r"\[(!?)(\]?[^\]]*)\]|.", re.DOTALL)
MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)
NOT_HIDDEN = r"(?!\.)"
FOLDERS = rf"(?:{NOT_HIDDEN}[^/]+/)*"


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
    """Makes the regular expression whose full matches are the glob's."""
    *folders, last = pattern.split("/")
    parts = [FOLDERS if part == "**" else _part(part) + "/" for part in folders]
    parts.append(f"{FOLDERS}{NOT_HIDDEN}[^/]+" if last == "**" else _part(last))
    return re.compile("".join(parts), re.DOTALL)


def _part(part: str) -> str:
    guard = NOT_HIDDEN if WILDCARD.match(part) and not ESCAPED.match(part) else ""
    return guard + TOKEN.sub(_translate, part)


def _translate(token: re.Match[str]) -> str:
    text, negated, members = token[0], token[1], token[2]
    if members:
        return _set(bool(negated), members)
    return {"*": "[^/]*", "?": "[^/]"}.get(text) or re.escape(text)


def _set(negated: bool, members: str) -> str:
    """One character of a set; a range that runs backwards holds none."""
    parts = []
    for first, last, single in MEMBER.findall(members):
        if single or first <= last:
            parts.append(re.escape(single) or f"{re.escape(first)}-{re.escape(last)}")
    if not parts:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"
