"""The rules for pages of C4 (Raffel et al. 2020), as datatrove decides: `filter: c4:keep`.

C4 also cuts the lines that break a rule out of a page; a filter keeps the page whole.
"""

import re
from collections.abc import Mapping

from words import sentences

CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
ENDS = (".", "?", "!", '"', "'")
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def keep(row: Mapping[str, str]) -> str | None:
    """Returns None for a page with 5 sentences in good lines, else the reason against it."""
    found = 0
    for line in map(str.strip, row["text"].splitlines()):
        parts, line = line.split(), CITATION.sub("", line)
        if any(len(word) > 1000 for word in parts) or len(parts) < 3:
            continue
        if not line.endswith(ENDS) or line.endswith("..."):
            continue
        if "lorem ipsum" in line.lower():
            return "lorem ipsum"
        if "javascript" in line.lower():
            continue
        if "{" in line:
            return "a curly bracket"
        if not any(phrase in line.lower() for phrase in POLICY):
            found += sentences(line)
    return "fewer than 5 sentences" if found < 5 else None
