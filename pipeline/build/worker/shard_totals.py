"""Batches that became records, and the sums of a shard's batches for its report."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.reject_files import write_rejects
from recordmill.pipeline.build.context.steps import shard_step
from recordmill.pipeline.build.duplicates.contents import write_contents
from recordmill.pipeline.dataset.text_lengths import measure
from recordmill.pipeline.sources.rejects import Reject


@dataclass(frozen=True)
class BuiltBatch:
    """A batch of rows that became records, and the rejects of those that did not."""

    records: list[bytes]
    """One a row; empty where documents share records."""
    keys: list[bytes]
    texts: Mapping[str, tf.RaggedTensor]
    """The rows' ids by text, int64 [rows, None]."""
    rejects: list[Reject]
    sources: list[int]
    """The source of each row."""
    labels: list[int]
    transcoded: Counter[str]
    """The number of images that were transcoded, by feature and format: `image TIFF`."""
    digest: bytes
    """The digest of the rows' keys and their images' files."""
    contents: pa.Table
    """The contents that rows are compared by (`pipeline.build.duplicates.contents`)."""


class ShardTotals:
    """Sums of a shard's batches."""

    def __init__(self, context: BuildContext, duplicates: list[Reject]) -> None:
        self._context = context
        self._rejects = duplicates
        self._written: Counter[int] = Counter()
        self._labels: Counter[int] = Counter()
        self._transcoded: Counter[str] = Counter()
        self._lengths: dict[str, list[npt.NDArray[np.int64]]] = {}
        self._digest = hashlib.sha256()
        self._contents: list[pa.Table] = []

    def add(self, built: BuiltBatch) -> None:
        """Adds a batch."""
        self._rejects += built.rejects
        self._written.update(built.sources)
        self._labels.update(built.labels)
        self._transcoded.update(built.transcoded)
        for name, ids in built.texts.items():
            self._lengths.setdefault(name, []).append(ids.row_lengths().numpy())
        self._digest.update(built.digest)
        self._contents.append(built.contents)

    def report(self, group: int) -> dict[str, Any]:
        """Writes the rejects and the contents; gives their files' names and the sums."""
        return {
            "written_by_source": {str(source): count for source, count in sorted(self._written.items())},
            "label_counts": {str(label): count for label, count in sorted(self._labels.items())},
            "transcoded": dict(sorted(self._transcoded.items())),
            "lengths": {name: measure(np.concatenate(lengths)) for name, lengths in self._lengths.items()},
            "rejected": len(self._rejects),
            "rejects": write_rejects(self._context.path("rejects"), shard_step(group), self._rejects),
            "inputs_sha256": self._digest.hexdigest(),
            "contents": write_contents(self._context.path("digests"), shard_step(group), self._contents),
        }
