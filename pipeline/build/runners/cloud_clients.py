"""Lets Apache Beam load without the clients of clouds, which a build of local files never calls.

Beam takes each for an optional package: it imports those that are installed, and goes on where one is not. It keeps to
that as long as the process lives, so only a process that runs nothing but such a build may hide them.

>>> with without_cloud_clients():  # doctest: +SKIP
...     import apache_beam
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

CLIENTS = (
    "boto3",
    "google.cloud.bigquery",
    "google.cloud.bigquery_storage_v1",
    "google.cloud.bigtable",
    "google.cloud.dataflow",
    "google.cloud.pubsub",
    "google.cloud.spanner",
    "google.cloud.storage",
    "googleapiclient",
    "pymongo",
)
"""Half of the CPU that loading Beam takes, and 40 MB; the last but one is TensorFlow's."""


@contextmanager
def without_cloud_clients() -> Iterator[None]:
    """Hides the clients that are not loaded yet: to import one inside the block is a `ModuleNotFoundError`."""
    hidden = dict.fromkeys([name for name in CLIENTS if name not in sys.modules], cast(ModuleType, None))
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
