"""FineWeb's own quality rules (Penedo et al. 2024) with datatrove's limits: `filter: fineweb:keep`."""

from collections.abc import Mapping

from words import ENDS, words


def keep(row: Mapping[str, str]) -> str | None:
    """Returns None for a text to keep, else the first rule that it breaks."""
    text = row["text"]
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return "empty"
    if sum(line.endswith(tuple(ENDS)) for line in lines) / len(lines) < 0.12:
        return "fewer than 12 % of the lines end a sentence"
    if sum(len(line) <= 30 for line in lines) / len(lines) > 0.67:
        return "more than 67 % of the lines are short"
    seen, again = set[str](), 0
    for line in lines:
        again += len(line) if line in seen else 0
        seen.add(line)
    if again / len(text.replace("\n", "")) > 0.01:
        return "more than 1 % of the letters are in repeated lines"
    if text.count("\n") / len(words(text)) > 0.3:
        return "more than 0.3 line breaks a word"
    return None
