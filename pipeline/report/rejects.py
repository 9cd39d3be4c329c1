"""Reads the first rejected rows of each reason, as a version lists them."""

from recordmill.pipeline.dataset.manifest import Json, Manifest
from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.rows import read_reject_lines


def read_rejects(folder: Location, manifest: Manifest, most: int) -> dict[str, list[Json]]:
    """Returns the first `most` rejects of each reason; a reason without a listed row has none.

    Raises:
        DatasetError: the file of rejects is missing or damaged.
    """
    by_reason: dict[str, list[Json]] = {reason: [] for reason in manifest.rejects.get("by_reason", {})}
    for file in manifest.rejects.get("files", []):
        for _, reject in read_reject_lines(folder, file["file"]):
            some = by_reason.setdefault(str(reject.get("code")), [])
            if len(some) < most:
                some.append(reject)
    return by_reason
