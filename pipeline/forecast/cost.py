"""The cost of a build on a cluster, by the prices of a dated file such as `deploy/prices.json`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

GB = 10**9
MEMORY_GB = 8
"""The memory that a vCPU of n2-highmem-4, the preset, has."""
BATCH_OVERHEAD = 1740
"""Bytes of a packed batch beside its rows: `python benchmarks/shuffle.py`."""
PART_BYTES = 8 << 20
"""The bytes that one request writes."""
GET_BYTES = 16 << 20
"""The bytes of a file of rows, read in order, that one request reads."""


class Cost(NamedTuple):
    """A build's cost in the currency of the prices."""

    work: float
    """CPU and memory."""
    shuffle: float
    requests: float
    month: float
    """Storing the shards for a month."""


def cost_of(
    cpu_seconds: float, shuffled: float, reads: float, writes: float, stored: float, prices: Mapping[str, Any]
) -> Cost:
    """Gives the cost of a build on Dataflow, with its files in Cloud Storage.

    Args:
        cpu_seconds: of all workers.
        shuffled: bytes across the shuffle.
        reads: requests that read.
        writes: requests that write or list.
        stored: bytes of the shards.
        prices: of `dataflow` and `gcs`.
    """
    dataflow, gcs = prices["dataflow"], prices["gcs"]
    return Cost(
        cpu_seconds / 3600 * (dataflow["vcpu_hour"] + MEMORY_GB * dataflow["memory_gb_hour"]),
        shuffled / GB * dataflow["shuffle_gb"],
        reads / 1000 * gcs["thousand_reads"] + writes / 1000 * gcs["thousand_writes_and_lists"],
        stored / GB * gcs["gb_month"],
    )
