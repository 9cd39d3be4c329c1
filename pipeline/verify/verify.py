"""`recordmill verify` without its sources: opens a dataset as the reader does, and reports.

>>> report = verify("out/emoji")  # doctest: +SKIP
>>> report.is_whole               # doctest: +SKIP
True
"""

import time

from recordmill.pipeline.reader.dataset import Dataset, open_dataset
from recordmill.pipeline.verify.report import Report
from recordmill.pipeline.verify.version import verify_version

NO_PARITY = "training = serving: give --spec dataset.yaml, whose sources must be where it says"


def verify(folder: str, version: str | None = None, *, quick: bool = False) -> Report:
    """Checks a version against its manifest.

    Args:
        folder: the dataset's folder, or a version's; on this machine or a URL.
        version: a version's name; by default the live one.
        quick: only sizes and digests, and the graphs' operations.

    Raises:
        DatasetError: there is no such version, or its manifest is broken.
    """
    return verify_opened(open_dataset(folder, version), quick=quick)


def verify_opened(dataset: Dataset, *, quick: bool = False) -> Report:
    """Checks an open version. Raises: DatasetError as `verify`."""
    started = time.monotonic()
    found = verify_version(dataset.folder, dataset.manifest, quick=quick)
    return Report(dataset.manifest, str(dataset.folder), found, time.monotonic() - started)
