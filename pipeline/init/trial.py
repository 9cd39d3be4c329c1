"""Tries a spec on the sample: which rows a build would reject."""

import math
from collections import Counter
from collections.abc import Iterable

from recordmill.pipeline.init.guess import Choice, Guess
from recordmill.pipeline.init.recognize import counted
from recordmill.pipeline.init.sample import Sample, count_rows, in_words
from recordmill.pipeline.spec.model import Spec

Rejects = Counter[tuple[str, str]]
"""Numbers of rows by reason and column."""
ENCODING = "`encoding: NAME`, such as cp1252, in the source reads text that is not UTF-8."


def try_spec(spec: Spec, features: Iterable[Guess], sample: Sample) -> tuple[list[str], Choice | None]:
    """Reads the sample as a build of the spec does; the spec's sources are the sample's, its features the guesses.

    Returns:
        The result in words, and the limit of rejects that a build would need, with the reason, if any would be one.

    Raises:
        SourceError: a build could not be planned.
    """
    blocks, is_all = sample.take(spec.columns(), spec.key_columns)
    rejects = Rejects((reject.reason, reject.column or "") for _, block in blocks for reject in block.rejects)
    key = spec.key_columns[0] if spec.key_columns else "@key"
    keys = [value for _, block in blocks for value in block.table[key].to_pylist()]
    rejects["duplicate_key", ""] = len(keys) - len(set(keys))
    rejects, rows = +rejects, sum(count_rows(block) for _, block in blocks)
    images, bad = _bad_images(features)
    words, before = in_words(rows, is_all=is_all), ", before their images are opened" if images else ""
    lines = [f"{words[:1].upper()}{words[1:]}{before}: {_rejected(rejects)}."]
    if images:
        headers = f"By the images' headers in {counted(images, 'row')}"
        lines.append(f"{headers}: {_rejected(bad)}; no pixel was decoded.")
    if not keys or 0 < images == bad.total():
        lines.append("None of these rows is good, so nothing would be built.")
    if hasattr(sample.sources[0], "encoding") and any(reason == "invalid_utf8" for reason, _ in rejects):
        lines.append(ENCODING)
    return lines, _limit(rejects.total() / max(rows, 1) + bad.total() / max(images, 1))


def _bad_images(features: Iterable[Guess]) -> tuple[int, Rejects]:
    """The number of rows whose images' headers were read, and those with a bad one."""
    rows = [(item.column, headers) for item in features for headers in item.headers]
    faults = [(column, [header for header in headers if isinstance(header, str)]) for column, headers in rows]
    return len(rows), Rejects((reasons[0], column) for column, reasons in faults if reasons)


def _limit(share: float) -> Choice | None:
    """The share of rejects that the build of such data needs; None where the sample has none."""
    if not share:
        return None
    limit = min(1.0, math.ceil(300 * share + 10) / 100)
    return {"max_share": limit}, f"a build stops at 1 %, and about {share:.1%} of the sample would be rejects"


def _rejected(rejects: Rejects) -> str:
    if not rejects:
        return "none would be a reject"
    ordered = sorted(rejects.items(), key=lambda item: (-item[1], item[0]))
    reasons = [f"{count:,} {reason}{f' in column {column}' if column else ''}" for (reason, column), count in ordered]
    are = "would be a reject" if rejects.total() == 1 else "would be rejects"
    return f"{rejects.total():,} {are} ({', '.join(reasons)})"
