"""Tries a spec on the sample: which rows a build would reject."""

import math
from collections import Counter
from dataclasses import dataclass

from recordmill.pipeline.init.images import read_headers
from recordmill.pipeline.init.recognize import counted
from recordmill.pipeline.init.sample import Sample, count_rows, in_words
from recordmill.pipeline.spec.model import Spec

Rejects = Counter[tuple[str, str]]
"""Numbers of rows by reason and column."""
ENCODING = "`encoding: NAME`, such as cp1252, in the source reads text that is not UTF-8."


@dataclass(frozen=True)
class Trial:
    """The rejects among the sampled rows."""

    rows: int
    is_all: bool
    """Whether there are no other rows."""
    rejects: Rejects
    images: int
    """The number of rows whose images' headers were read."""
    bad_images: Rejects
    hint: str = ""
    """A line on the remedy."""

    def limit(self) -> tuple[float, str]:
        """The share of rejects that a build should take, and why."""
        share = self.rejects.total() / max(self.rows, 1) + self.bad_images.total() / max(self.images, 1)
        if share:
            why = f"about {share:.1%} of the sample would be rejects; three times that and 10 %: a build sees more"
            return min(1.0, math.ceil(300 * share + 10) / 100), why
        if self.images:
            return 0.05, "none of the sample would be a reject, but damaged pixels show only in a build"
        return 0.01, "none of the sample would be a reject"

    def lines(self) -> list[str]:
        """The result in words."""
        rows = in_words(self.rows, is_all=self.is_all)
        before = ", before their images are opened" if self.images else ""
        lines = [f"{rows[:1].upper()}{rows[1:]}{before}: {_rejected(self.rejects)}."]
        if self.images:
            headers = f"By the images' headers in {counted(self.images, 'row')}"
            lines.append(f"{headers}: {_rejected(self.bad_images)}; no pixel was decoded.")
        if self.rows == self.rejects.total() or 0 < self.images == self.bad_images.total():
            lines.append("None of these rows is good, so nothing would be built.")
        return [*lines, self.hint] if self.hint else lines


def try_spec(spec: Spec, sample: Sample) -> Trial:
    """Reads the sample as a build of the spec does; the spec's sources are the sample's.

    Raises:
        SourceError: a build could not be planned.
    """
    blocks, is_all = sample.take(spec.columns(), spec.key_columns)
    rejects = Rejects((reject.reason, reject.column or "") for _, block in blocks for reject in block.rejects)
    key = spec.key_columns[0] if spec.key_columns else "@key"
    keys = [value for _, block in blocks for value in block.table[key].to_pylist()]
    rejects["duplicate_key", ""] = len(keys) - len(set(keys))
    images, bad = 0, Rejects()
    for name, feature in spec.features.items():
        if feature.kind in ("image", "image_sequence"):
            column = feature.column or name
            headers = read_headers(sample, column, many=feature.kind != "image")
            faults = [[size for size in row if isinstance(size, str)] for row in headers]
            images += len(headers)
            bad.update((row[0], column) for row in faults if row)
    is_other = hasattr(sample.sources[0], "encoding") and any(reason == "invalid_utf8" for reason, _ in rejects)
    hint = ENCODING if is_other else ""
    return Trial(sum(count_rows(block) for _, block in blocks), is_all, +rejects, images, bad, hint)


def _rejected(rejects: Rejects) -> str:
    if not rejects:
        return "none would be a reject"
    ordered = sorted(rejects.items(), key=lambda item: (-item[1], item[0]))
    reasons = [f"{count:,} {reason}{f' in column {column}' if column else ''}" for (reason, column), count in ordered]
    are = "would be a reject" if rejects.total() == 1 else "would be rejects"
    return f"{rejects.total():,} {are} ({', '.join(reasons)})"
