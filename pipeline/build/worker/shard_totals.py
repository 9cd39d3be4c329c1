"""The sums of a shard's rows for its report: made of each batch, and added up."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.file_digests import write_file_digests
from recordmill.pipeline.build.context.rejects import write_rejects
from recordmill.pipeline.build.context.steps import shard_step
from recordmill.pipeline.build.duplicates.contents import write_contents
from recordmill.pipeline.dataset.profile import Profile, add_up, measure_lengths, profile_to_json
from recordmill.pipeline.sources.faults import Reject

TOGETHER = 64  # profiles that are added up at once: some 2 MiB


@dataclass
class ShardTotals:
    """Sums of a batch's rows, or of several batches'."""

    rejects: list[Reject]
    written: Counter[int] = field(default_factory=Counter)
    """The number of rows that became records, by source."""
    labels: Counter[int] = field(default_factory=Counter)
    transcoded: Counter[str] = field(default_factory=Counter)
    """The number of images that were transcoded, by feature and format: `image TIFF`."""
    lengths: dict[str, list[npt.NDArray[np.int64]]] = field(default_factory=dict)
    """The number of ids of each row, by text."""
    profiles: list[Profile] = field(default_factory=list)
    """Those of the batches, or their sums."""
    digests: list[bytes] = field(default_factory=list)
    """The digests of the batches' keys and image files."""
    whole: dict[str, bytes] = field(default_factory=dict)
    """The digests of local files that were read as a whole, by full path."""
    contents: list[pa.Table] = field(default_factory=list)
    """The contents that rows are compared by (`pipeline.build.duplicates.contents`)."""

    def add(self, batch: "ShardTotals") -> None:
        """Adds the sums of the next batch."""
        self.rejects += batch.rejects
        self.written.update(batch.written)
        self.labels.update(batch.labels)
        self.transcoded.update(batch.transcoded)
        for name, lengths in batch.lengths.items():
            self.lengths.setdefault(name, []).extend(lengths)
        self.profiles += batch.profiles
        if len(self.profiles) > TOGETHER:
            self.profiles = [add_up(self.profiles)]
        self.digests += batch.digests
        self.whole |= batch.whole
        self.contents += batch.contents

    def report(self, context: BuildContext, group: int) -> dict[str, Any]:
        """Writes the rejects, the contents and the files' digests; returns the rejects' file and the sums."""
        write_file_digests(context.workspace, group, self.whole)
        write_contents(context.workspace, group, self.contents)
        return {
            "written_by_source": {str(source): count for source, count in sorted(self.written.items())},
            "label_counts": {str(label): count for label, count in sorted(self.labels.items())},
            "transcoded": dict(sorted(self.transcoded.items())),
            "lengths": {name: measure_lengths(np.concatenate(lengths)) for name, lengths in self.lengths.items()},
            "profile": profile_to_json(add_up(self.profiles)),
            "rejected": len(self.rejects),
            "rejects": write_rejects(context.workspace, f"rejects/{shard_step(group)}", self.rejects),
            "inputs_sha256": hashlib.sha256(b"".join(self.digests)).hexdigest(),
        }
