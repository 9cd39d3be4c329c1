"""A spec tried on a sample: which rows would be rejected and why, and which split gets how many."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from recordmill.pipeline.build.plan import make_plan, planned_build
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.init.column_sample import Sample, Taken
from recordmill.pipeline.init.guess_images import look
from recordmill.pipeline.init.guess_kind import counted
from recordmill.pipeline.init.sampling import PIECE_BYTES
from recordmill.pipeline.spec.model import Spec
from recordmill.transforms.contract.stored import IMAGES


@dataclass(frozen=True)
class Trial:
    """What came of the sampled rows."""

    taken: Taken
    rejects: Mapping[tuple[str, str], int]
    """How many rows would be rejected, by reason and column."""
    splits: Mapping[str, int]
    """How many rows each split gets, of those that are read."""
    pictures: int
    """How many rows' pictures were looked at, by their headers."""
    bad_pictures: Mapping[tuple[str, str], int]
    """How many of these would be rejected, by reason and column."""

    def limit(self) -> tuple[float, str]:
        """The share of rejects that a build should take, and why."""
        share = sum(self.rejects.values()) / max(self.taken.rows, 1)
        share += sum(self.bad_pictures.values()) / max(self.pictures, 1)
        if share:
            why = f"about {share:.1%} of the sample would be rejects; three times that and 10 %: a build sees more"
            return min(1.0, math.ceil(300 * share + 10) / 100), why
        if self.pictures:
            return 0.05, "none of the sample would be a reject, but damaged pixels show only in a build"
        return 0.01, "none of the sample would be a reject"

    def lines(self) -> list[str]:
        """It all in words, a line each."""
        rows = self.taken.words(self.taken.rows)
        before = ", before their pictures are opened" if self.pictures else ""
        lines = [f"{rows[:1].upper()}{rows[1:]}{before}: {_rejected(self.rejects)}."]
        if self.pictures:
            seen = counted(self.pictures, "row")
            lines.append(f"By the pictures' headers in {seen}: {_rejected(self.bad_pictures)}; no pixel was decoded.")
        if not self.splits.get("train") or 0 < self.pictures == sum(self.bad_pictures.values()):
            lines.append("None of these rows is good and of the split train, without which nothing is built.")
        return lines


def try_spec(spec: Spec, sample: Sample) -> Trial:
    """Reads the sample as a build of the spec would; the spec's sources are the sample's.

    Raises:
        SourceError: a build could not be planned.
    """
    spec = spec.model_copy(update={"source": sample.sources})
    plan = make_plan(spec, sample.files, PIECE_BYTES)
    rows = planned_build(plan, ".", sample.files, inline=False, threads=1).schema
    taken = sample.take(spec.columns(), rows.source_key)
    rejects, splits, keys = Counter[tuple[str, str]](), Counter[str](), Counter[bytes]()
    for chunk, block in taken.blocks:
        good, bad = key_rows(block, chunk, rows, plan.layout)
        rejects.update((reject.reason, reject.column or "") for reject in bad)
        splits.update(plan.layout.splits[place] for place in good["@split"].to_pylist())
        keys.update(good["@key"].to_pylist())
    repeated = keys.total() - len(keys)
    if repeated:
        rejects["duplicate_key", ""] += repeated
    pictures, bad_pictures = _look(spec, sample)
    return Trial(taken, rejects, splits, pictures, bad_pictures)


def _look(spec: Spec, sample: Sample) -> tuple[int, Counter[tuple[str, str]]]:
    """How many rows' pictures were looked at, and what is wrong with them."""
    count, bad = 0, Counter[tuple[str, str]]()
    for name, feature in spec.features.items():
        if feature.kind in IMAGES:
            column = feature.column or name
            looked = look(sample, column, many=feature.kind != "image")
            count += len(looked.sizes)
            bad.update({(reason, column): found for reason, found in looked.faults.items()})
    return count, bad


def _rejected(rejects: Mapping[tuple[str, str], int]) -> str:
    if not rejects:
        return "none would be a reject"
    told = [
        f"{count:,} {reason}{f' in column {column}' if column else ''}"
        for (reason, column), count in sorted(rejects.items(), key=lambda item: (-item[1], item[0]))
    ]
    count = sum(rejects.values())
    return f"{count:,} would be {'a reject' if count == 1 else 'rejects'} ({', '.join(told)})"
