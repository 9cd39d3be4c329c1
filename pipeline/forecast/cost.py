"""The cost of a build on a cluster, by the prices of a dated file such as `deploy/prices.json`."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recordmill.pipeline.errors import UserError

GB = 10**9
MEMORY_GB = 8
"""The memory that a vCPU of n2-highmem-4, the preset, has."""
BATCH_OVERHEAD = 1740
"""Bytes of a packed batch beside its rows: `python benchmarks/shuffle.py`."""
PART_BYTES = 8 << 20
"""The bytes that one request writes."""
GET_BYTES = 16 << 20
"""The bytes of a file of rows, read in order, that one request reads."""

PRICES = {
    "dataflow": ("vcpu_hour", "memory_gb_hour", "shuffle_gb"),
    "gcs": ("gb_month", "thousand_reads", "thousand_writes_and_lists"),
}
"""The prices that a cost is made of, by service."""
BEGIN = "begin with deploy/prices.json"


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


def read_prices(file: Path) -> dict[str, Any]:
    """Reads a file of prices.

    Raises:
        UserError: it is no JSON, or lacks one of `PRICES`, or one is no number.
    """
    try:
        prices = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UserError(f"{file} is no file of prices ({error}): {BEGIN}") from None
    for service, names in PRICES.items():
        of_service = prices.get(service) if isinstance(prices, dict) else None
        for name in names:
            price = of_service.get(name) if isinstance(of_service, dict) else None
            if not _is_price(price):
                found = "has none" if price is None else f"says {json.dumps(price)}"
                raise UserError(f"{file}: the price `{service}.{name}` is a number, 0 or more, but it {found}: {BEGIN}")
    return prices


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
