"""The quality rules of Gopher (Rae et al. 2021, table A1) with datatrove's limits: `filter: gopher:keep`."""

from collections.abc import Mapping

from words import SIGNS, words

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}


def keep(row: Mapping[str, str]) -> str | None:
    """Returns None for a text to keep, else the first rule that it breaks."""
    text = row["text"]
    every, lines = words(text), text.splitlines()
    real = [word for word in every if any(sign not in SIGNS for sign in word)]
    if len(real) < 50:
        return "fewer than 50 words"
    if len(real) > 100_000:
        return "more than 100,000 words"
    length = sum(map(len, real)) / len(real)
    if not 3 <= length <= 10:
        return "words shorter than 3 letters in the mean" if length < 3 else "words longer than 10 letters in the mean"
    if text.count("#") / len(every) > 0.1:
        return "more than 0.1 hashes a word"
    if (text.count("...") + text.count("…")) / len(every) > 0.1:
        return "more than 0.1 ellipses a word"
    if sum(line.lstrip().startswith(("•", "-")) for line in lines) / len(lines) > 0.9:
        return "more than 90 % of the lines are bullets"
    if sum(line.rstrip().endswith(("...", "…")) for line in lines) / len(lines) > 0.3:
        return "more than 30 % of the lines end in an ellipsis"
    if sum(any(sign.isalpha() for sign in word) for word in every) / len(every) < 0.8:
        return "fewer than 80 % of the words have a letter"
    return "fewer than 2 stop words" if len(STOP_WORDS.intersection(every)) < 2 else None
