"""The files of rejects without rows that were forgotten: their keys stand there."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from recordmill.pipeline.dataset.file_names import REJECTED, span_file
from recordmill.pipeline.dataset.key_hash import digest
from recordmill.pipeline.dataset.manifest import Json, Location, Manifest
from recordmill.pipeline.dataset.reject_lines import read_reject_lines
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
        DatasetError: a file of rejects cannot be read, or is broken.
    """
    known, reasons = set(gone.digests), Counter[str](manifest.rejects.get("by_reason", {}))
    result, listed = Rejected(dict(manifest.rejects)), list[Json]()
    for file in manifest.rejects.get("files", []):
        left = list[bytes]()
        for line, key, reason in _lines(folder, file["file"]):
            if key in known:
                result.digests.add(key)
                reasons[reason] -= 1
            else:
                left.append(line)
        if len(left) < file.get("records", 0):
            data = b"".join(left)
            result.removed += file.get("records", 0) - len(left)
            result.files[file["file"]] = data
            digests = {"bytes": len(data), "records": len(left), "sha256": hashlib.sha256(data).hexdigest()}
            file = {**file, **digests}
        listed.append(file)
    for span in manifest.spans if result.removed else ():
        path = span_file(span, REJECTED)
        if path in manifest.files:
            count = sum(key in known for _, key, _ in _lines(folder, path))
            result.by_span.update({span: count} if count else {})
    if result.removed:
        result.entry |= {"by_reason": {reason: count for reason, count in reasons.items() if count}, "files": listed}
    return result


def _lines(folder: Location, path: str) -> Iterator[tuple[bytes, bytes | None, str]]:
    """Gives the lines of a file of rejects, each with the digest of the row's key, if it has one, and the reason."""
    for line, reject in read_reject_lines(folder, path):
        id_ = reject.get("id")
        key = None if id_ is None else digest(str(id_).encode("utf-8", "surrogateescape"))
        yield line, key, str(reject.get("code"))
