"""The memory for sorting a shard's rows, as in `docs/clusters.md`."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from recordmill.pipeline.build.worker.packing import pack, unpack


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts Arrow's allocations."""
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(pool)
    yield pool
    pa.set_memory_pool(usual)


def test_a_shards_rows_are_held_three_times_beside_what_came(pool: pa.MemoryPool) -> None:
    random, packed, size = np.random.default_rng(0), [], 0
    for _ in range(16):
        data = pa.array([random.bytes(500_000) for _ in range(4)], pa.binary())
        rows = pa.table({"@group": np.zeros(4, np.int64), "@hash": random.integers(0, 1 << 62, 4), "data": data})
        packed += [each for _, each in pack([rows], None)]
        size += rows.nbytes
    assert sum(len(each.data or b"") for each in packed) < 1.05 * size  # of noise
    del rows, data
    ordered = unpack(packed).sort_by([("@hash", "ascending")])
    assert ordered.num_rows == 64
    assert 0.9 * size < ordered.nbytes
    assert pool.max_memory() < 3.2 * size
