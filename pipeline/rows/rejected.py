"""The files of rejects without rows that were forgotten: their keys stand there."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field

from recordmill.pipeline.dataset.file_names import REJECTED, span_file
from recordmill.pipeline.dataset.key_hash import digest
from recordmill.pipeline.dataset.manifest import Json, Location, Manifest
from recordmill.pipeline.dataset.safe_paths import read_inner
from recordmill.pipeline.versions.forgotten import Forgotten


@dataclass
class Rejected:
    """A version's rejects without forgotten rows."""

    entry: Json
    """The manifest's entry."""
    files: dict[str, bytes] = field(default_factory=dict)
    """The files that differ, by path."""
    digests: set[bytes] = field(default_factory=set)
    """The digests of the keys that were taken out."""
    removed: int = 0
    by_span: Counter[str] = field(default_factory=Counter)
    """The number of rows taken out, by span."""

    @property
    def spans(self) -> set[str]:
        """The spans that they belonged to."""
        return set(self.by_span)


def without_rejects(folder: Location, manifest: Manifest, gone: Forgotten) -> Rejected:
    """Takes forgotten rows out of the rejects of a version.

    Raises:
        DatasetError, OSError: a file of rejects cannot be read.
    """
    known, reasons = set(gone.digests), Counter[str](manifest.rejects.get("by_reason", {}))
    result, listed = Rejected(dict(manifest.rejects)), list[Json]()
    for file in manifest.rejects.get("files", []):
        left = list[bytes]()
        for line in read_inner(folder, file["file"]).splitlines(keepends=True):
            reject = json.loads(line)
            key = digest(str(reject.get("id")).encode("utf-8", "surrogateescape"))
            if reject.get("id") is not None and key in known:
                result.digests.add(key)
                reasons[reject["code"]] -= 1
            else:
                left.append(line)
        if len(left) < file["records"]:
            data = b"".join(left)
            result.removed += file["records"] - len(left)
            result.files[file["file"]] = data
            digests = {"bytes": len(data), "records": len(left), "sha256": hashlib.sha256(data).hexdigest()}
            file = {**file, **digests}
        listed.append(file)
    for span in manifest.spans if result.removed else ():
        path = span_file(span, REJECTED)
        if path in manifest.files:
            ids = (json.loads(line).get("id") for line in read_inner(folder, path).splitlines())
            keys = [digest(str(id_).encode("utf-8", "surrogateescape")) for id_ in ids if id_ is not None]
            result.by_span.update({span: count} if (count := sum(key in known for key in keys)) else {})
    if result.removed:
        result.entry |= {"by_reason": {reason: count for reason, count in reasons.items() if count}, "files": listed}
    return result
