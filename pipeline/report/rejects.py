"""Reads the first rejected rows of each reason, as a version lists them."""

import json

from recordmill.pipeline.dataset.manifest import DatasetError, Json, Manifest
from recordmill.pipeline.dataset.safe_paths import Location, read_inner


def read_rejects(folder: Location, manifest: Manifest, most: int) -> dict[str, list[Json]]:
    """Gives the first `most` rejects of each reason; a reason without a listed row has none.

    Raises:
        DatasetError: the file of rejects is missing or damaged.
    """
    by_reason: dict[str, list[Json]] = {reason: [] for reason in manifest.rejects.get("by_reason", {})}
    for file in manifest.rejects.get("files", []):
        try:
            rejects = map(json.loads, read_inner(folder, file["file"]).splitlines())
            for reject in rejects:
                some = by_reason.setdefault(str(reject.get("code")), [])
                if len(some) < most:
                    some.append(reject)
        except (OSError, ValueError, AttributeError) as error:
            raise DatasetError(f"{folder / file['file']} cannot be read ({error}): run `recordmill verify`") from None
    return by_reason
