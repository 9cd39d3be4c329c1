"""Paths with spans: `data/{span}/…`, or `data/{YYYY}-{MM}-{DD}/…`, hours with `{HH}`.

A placeholder is one part of a path, or some of its characters; `{span}` takes any name, the others take the digits of a
real date. What stands in it names the span: each value found is one, and its rows have shards of their own.

>>> template = Template("logs/{YYYY}/{MM}/{DD}/*.csv")
>>> template.span_of("logs/2026/11/20/a.csv")
'2026-11-20'
>>> template.span_of("logs/2026/11/31/a.csv") is None
True
>>> template.fill("2026-11-20")
'logs/2026/11/20/*.csv'
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from recordmill.pipeline.dataset.paths import is_folder_name
from recordmill.pipeline.sources.globs import escape, glob_pattern, is_glob
from recordmill.pipeline.sources.options import SourceOptions

DIGITS = {"YYYY": 4, "MM": 2, "DD": 2, "HH": 2}
DAY = re.compile(r"(?P<YYYY>[0-9]{4})-(?P<MM>[0-9]{2})-(?P<DD>[0-9]{2})(?:T(?P<HH>[0-9]{2}))?")
PLACEHOLDER = re.compile(r"\{(span|YYYY|MM|DD|HH)\}")
TEMPLATED = ("path", "images")
"""The options of a source that may hold placeholders."""


@dataclass(frozen=True)
class Template:
    """A path with placeholders; elsewhere it may be a glob."""

    path: str

    @cached_property
    def names(self) -> frozenset[str]:
        """The placeholders in it."""
        return frozenset(PLACEHOLDER.findall(self.path))

    def fault(self) -> str | None:
        """Says why its placeholders name no span; None if they do."""
        if not self.names or self.names == {"span"} or self.names - {"HH"} == {"YYYY", "MM", "DD"}:
            return None
        shown = ", ".join(f"{{{name}}}" for name in sorted(self.names))
        return f"{shown}: a span is {{span}}, or a day of {{YYYY}}, {{MM}} and {{DD}}, with or without {{HH}}"

    def glob(self) -> str:
        """Gives the pattern of the paths of all spans."""
        return PLACEHOLDER.sub(lambda match: "[0-9]" * DIGITS.get(match[1], 0) or "*", self.path)

    def span_of(self, path: str) -> str | None:
        """Gives the span of a path that the glob matches, or of a file below it; None for no real date."""
        match = self._pattern.match(path)
        if match is None:
            return None
        return _name(match.groupdict())

    def fill(self, span: str, text: str | None = None) -> str | None:
        """Gives the path of one span, or another text of these placeholders; None if no span can be named so."""
        text, values = self.path if text is None else text, self._values(span)
        value = escape if is_glob(text) else str
        return None if values is None else PLACEHOLDER.sub(lambda match: value(values[match[1]]), text)

    def _values(self, span: str) -> dict[str, str] | None:
        """Gives the text of each placeholder in a span."""
        if "span" in self.names:
            return {"span": span} if is_folder_name(span) else None
        match = DAY.fullmatch(span)
        values = match.groupdict() if match else {}
        has_hour = values.get("HH") is not None
        return values if values and _name(values) == span and has_hour == ("HH" in self.names) else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The expression that the beginning of a path matches, with a group for each placeholder."""
        seen, text = set[str](), glob_pattern(PLACEHOLDER.sub(lambda match: f"\0{match[1]}\0", self.path)).pattern

        def group(name: str) -> str:
            if name in seen:
                return f"(?P={name})"
            seen.add(name)
            return f"(?P<{name}>{rf'[0-9]{{{DIGITS[name]}}}' if name in DIGITS else '[^/]+?'})"

        return re.compile(re.sub(r"\\?\0(\w+)\\?\0", lambda match: group(match[1]), text) + r"(?=/|\Z)", re.DOTALL)


def _name(values: Mapping[str, str]) -> str | None:
    span = values.get("span")
    if span is not None:
        return span if is_folder_name(span) else None
    day = "-".join(values[name] for name in ("YYYY", "MM", "DD"))
    hour = values.get("HH")
    try:
        datetime.fromisoformat(day if hour is None else f"{day}T{hour}")
    except ValueError:
        return None
    return day if hour is None else f"{day}T{hour}"


def is_template(source: SourceOptions) -> bool:
    """Whether the files of a source name spans."""
    return bool(Template(source.path).names)
