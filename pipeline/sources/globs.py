r"""Globs, with one meaning on every filesystem, and paths with spans.

**Globs.** Within a part of a path, `*` matches any characters, `?` one, and `[abc]`, `[a-z]`, `[!abc]` one of a set; a
part `**` matches any number of folders, also none, and at the end every file below. A leading wildcard does not match a
dot: hidden files and folders need a pattern that writes the dot.

>>> bool(glob_pattern("data/**/*.jsonl").fullmatch("data/a.jsonl"))
True

**Spans.** In `data/{span}/…` or `data/{YYYY}-{MM}-{DD}/…`, with hours `{HH}`, a placeholder is one part of a path or
some of its characters; `{span}` takes any name, the others the digits of a real date. Each value is a span, and its
rows get their own shards.

>>> template = Template("logs/{YYYY}/{MM}/{DD}/*.csv")
>>> template.span_of("logs/2026/11/20/a.csv"), template.span_of("logs/2026/11/31/a.csv")
('2026-11-20', None)
>>> template.fill("2026-11-20")
'logs/2026/11/20/*.csv'

In any path, `[{]span}/*.csv` names a folder literally.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby

from recordmill.pipeline.dataset.paths import is_folder_name

WILDCARD = re.compile(r"[*?]|\[(?!\{\])")
ESCAPED = re.compile(r"\[([*?\[{])\]")
LITERAL = re.compile(r"(?:[^*?\[]|\[[*?\[{]\])*")
TOKEN = re.compile(r"\[(!?)(\]?[^\]]*)\]|.", re.DOTALL)
MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)
NOT_HIDDEN = r"(?!\.)"
ANY = "[^/]*"
FOLDERS = rf"(?:{NOT_HIDDEN}[^/]++/)*"
STORES = ("s3://", "gs://")  # object stores: each slash of a key counts
FIXED = "\0"  # marks placeholders in a `Template`'s pattern: the text around one decides its value
DIGITS = {"YYYY": 4, "MM": 2, "DD": 2, "HH": 2}
DAY = re.compile(r"(?P<YYYY>[0-9]{4})-(?P<MM>[0-9]{2})-(?P<DD>[0-9]{2})(?:T(?P<HH>[0-9]{2}))?")
PLACEHOLDER = re.compile(r"\{(span|YYYY|MM|DD|HH)\}")


def is_glob(path: str) -> bool:
    """Whether the path has a wildcard."""
    return WILDCARD.search(path) is not None


def is_literal(pattern: str) -> bool:
    """Whether the pattern matches only one path, `literal_prefix`."""
    return LITERAL.fullmatch(pattern) is not None


def escape(path: str) -> str:
    """Makes a pattern that matches only this path."""
    return WILDCARD.sub(r"[\g<0>]", path)


def literal_prefix(pattern: str) -> str:
    """Returns the literal beginning of every match, unescaped."""
    return ESCAPED.sub(r"\1", LITERAL.match(pattern)[0])  # type: ignore[index]  # it also matches the empty text


def folder_prefix(pattern: str) -> str:
    """Returns the folder of every match, with a trailing slash; '' for the working folder."""
    prefix = literal_prefix(pattern)
    return prefix[: prefix.rfind("/") + 1]


def without_slash(path: str) -> str:
    """Strips trailing slashes from a folder; in a store only one, since `a//` and `a/` are different prefixes."""
    return path.removesuffix("/") if path.startswith(STORES) else path.rstrip("/")


def depth(pattern: str) -> int | None:
    """Returns how many folders below `folder_prefix` a match can lie; None if unlimited."""
    parts = pattern.split("/")
    return None if "**" in parts else len(parts) - 1 - folder_prefix(pattern).count("/")


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """Makes a regular expression that matches a glob's paths in full.

    Each wildcard but the last is lazy and atomic, since a later match only leaves less for the rest: cost stays linear.
    """
    *folders, last = pattern.split("/")
    parts = [FOLDERS if part == "**" else _part(part) + "/" for part in folders]
    parts += [FOLDERS, f"{NOT_HIDDEN}[^/]+"] if last == "**" else [_part(last)]
    return re.compile(_in_turn(parts, FOLDERS, is_fixed=FIXED in pattern), re.DOTALL)


def _part(part: str) -> str:
    guard = NOT_HIDDEN if WILDCARD.match(part) and not ESCAPED.match(part) else ""
    return guard + _in_turn(map(_translate, TOKEN.finditer(part)), ANY, is_fixed=FIXED in part)


def _in_turn(pieces: Iterable[str], wildcard: str, *, is_fixed: bool) -> str:
    """Joins pieces of an expression; consecutive wildcards become one."""
    runs = [(is_wildcard, "".join(run)) for is_wildcard, run in groupby(pieces, wildcard.__eq__)]
    runs = [(False, ""), *runs] if not runs or runs[0][0] else runs
    first, *others = [text for is_wildcard, text in runs if not is_wildcard] + [""] * runs[-1][0]
    if not others:
        return first
    *middle, last = others
    lazy = "".join(f"{wildcard}{piece}" if is_fixed else f"(?>{wildcard}?{piece})" for piece in middle)
    return f"{first}{lazy}{wildcard}{last}"


def _translate(token: re.Match[str]) -> str:
    """Translates one character or set of a glob; a backward range is empty."""
    text, negated, members = token[0], token[1], token[2]
    if not members:
        return {"*": ANY, "?": "[^/]"}.get(text) or re.escape(text)
    parts = [
        re.escape(single) or f"{re.escape(first)}-{re.escape(last)}"
        for first, last, single in MEMBER.findall(members)
        if single or first <= last
    ]
    if not parts:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"


@dataclass(frozen=True)
class Template:
    """A path, perhaps a glob, with placeholders."""

    path: str

    @cached_property
    def names(self) -> frozenset[str]:
        """The placeholders in the path."""
        return frozenset(PLACEHOLDER.findall(self.path))

    def fault(self) -> str | None:
        """Returns why the placeholders name no span; None if they do."""
        if not self.names or self.names == {"span"} or self.names - {"HH"} == {"YYYY", "MM", "DD"}:
            return None
        shown = ", ".join(f"{{{name}}}" for name in sorted(self.names))
        wanted = "a span is {span}, or a day of {YYYY}, {MM} and {DD}, with or without {HH}"
        return f"{shown}: {wanted}; write a folder with this literal name as {without_spans(f'{{{min(self.names)}}}')}"

    def glob(self) -> str:
        """Returns a pattern for the paths of all spans; with dates also of invalid ones, such as 2026-1-5."""
        return PLACEHOLDER.sub(lambda match: "[0-9]*" if match[1] in DIGITS else "*", self.path)

    def named(self, path: str) -> str:
        """Returns the part of a path that names its span."""
        parts = self.path.split("/")
        last = max(number for number, part in enumerate(parts) if PLACEHOLDER.search(part))
        return "/".join(path.split("/")[: last + 1])

    def span_of(self, path: str) -> str | None:
        """Returns the span of a matching path, or of a path below one; None for an invalid date."""
        match = self._pattern.match(path)
        return match and _name(match.groupdict())

    def fill(self, span: str, text: str | None = None) -> str | None:
        """Fills a span's name, escaped, into the path or a text with its placeholders; None if it does not fit."""
        day = DAY.fullmatch(span)
        values = {"span": span} if "span" in self.names else day.groupdict() if day else {}
        has_hour = values.get("HH") is not None
        if not values or _name(values) != span or has_hour != ("HH" in self.names):
            return None
        return PLACEHOLDER.sub(lambda match: escape(values[match[1]]), self.path if text is None else text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The expression for the beginning of paths, with a group for each placeholder."""
        seen, text = set[str](), glob_pattern(PLACEHOLDER.sub(lambda match: f"\0{match[1]}\0", self.path)).pattern

        def group(name: str) -> str:
            if name in seen:
                return f"(?P={name})"
            seen.add(name)
            return f"(?P<{name}>{rf'[0-9]{{{DIGITS[name]}}}' if name in DIGITS else '[^/]+?'})"

        return re.compile(re.sub(r"\\?\0(\w+)\\?\0", lambda match: group(match[1]), text) + r"(?=/|\Z)", re.DOTALL)


def _name(values: Mapping[str, str]) -> str | None:
    """Names the span of a template's values; None for an invalid date or folder name."""
    span = values.get("span")
    if span is not None:
        return span if is_folder_name(span) else None
    day, hour = "-".join(values[name] for name in ("YYYY", "MM", "DD")), values.get("HH")
    name = day if hour is None else f"{day}T{hour}"
    with suppress(ValueError):
        datetime.fromisoformat(name)
        return name
    return None


def without_spans(path: str) -> str:
    """Escapes the placeholders in a path: `[{]span}`."""
    return PLACEHOLDER.sub(lambda match: f"[{{]{match[1]}}}", path)
