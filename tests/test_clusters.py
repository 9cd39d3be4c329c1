"""Equal digests and similar pictures form clusters, as in a comparison of all pairs."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.duplicates.find import COLOUR_DISTANCE, Components, find_links, join_links, tasks
from recordmill.pipeline.build.duplicates.fingerprints import Numbers

SMALL = st.integers(0, 3)
BITS = st.lists(st.integers(0, 63), max_size=10)


def by_all_pairs(links: list[tuple[int, int]], rows: int) -> dict[int, int]:
    """Maps rows in clusters to their cluster's lowest row, by following links until nothing changes."""
    names = list(range(rows))
    for _ in range(rows):
        for one, other in links:
            names[one] = names[other] = min(names[one], names[other])
    return {row: name for row, name in enumerate(names) if names.count(name) > 1}


def find_near(shapes: Numbers, colours: Numbers, distance: int) -> dict[int, int]:
    """Maps similar rows to the lowest row linked to each, over all tasks."""
    looks = np.stack([shapes, colours], axis=2).reshape(len(shapes), 2 * shapes.shape[1]).astype(">u8")
    width = 8 * looks.shape[1]
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(looks), [None, pa.py_buffer(looks.tobytes())])
    table = pa.table({"name": np.arange(len(looks)), "looks": column})
    table = table.filter(pa.array(shapes.all(axis=1)))
    links = [find_links([table], distance, task) for task in tasks(distance, len(looks), part_rows=2_000)]
    joined = join_links(pa.concat_tables(links))
    return dict(zip(joined["name"].to_pylist(), joined["root"].to_pylist(), strict=True))


@given(
    st.lists(st.tuples(SMALL, BITS, st.integers(0, 2 * COLOUR_DISTANCE)), max_size=25),
    st.integers(0, 8),
    st.integers(1, 2),
)
def test_pictures_that_look_alike_are_a_cluster(
    pictures: list[tuple[int, list[int], int]], distance: int, width: int
) -> None:
    seeds = np.random.default_rng(3).integers(1, 1 << 63, (4, width), dtype=np.uint64)
    flips = [sum(1 << bit for bit in set(bits)) for _, bits, _ in pictures]
    hashes = [[int(one) ^ flip for one in seeds[seed]] for (seed, _, _), flip in zip(pictures, flips, strict=True)]
    hashes = [[0] * width if seed == 0 else row for row, (seed, _, _) in zip(hashes, pictures, strict=True)]  # flat
    shapes = np.array(hashes, np.uint64).reshape(-1, width)
    colours = np.array([[colour << 56 | 7] * width for _, _, colour in pictures], np.uint64).reshape(-1, width)

    def alike(one: int, other: int) -> bool:
        pairs = zip(hashes[one], hashes[other], strict=True)
        near = all(a and b and (a ^ b).bit_count() <= distance for a, b in pairs)
        return near and abs(pictures[one][2] - pictures[other][2]) <= COLOUR_DISTANCE

    links = [(a, b) for a, b in combinations(range(len(pictures)), 2) if alike(a, b)]
    assert find_near(shapes, colours, distance) == by_all_pairs(links, len(pictures))


@pytest.mark.parametrize("distance", [0, 1, 4, 6, 8])
def test_a_pair_is_found_wherever_its_bits_differ(distance: int) -> None:
    random = np.random.default_rng(distance)
    shapes = random.integers(1, 1 << 63, (3_000, 1), dtype=np.uint64)
    for place in range(1_000):
        bits = random.choice(64, distance, replace=False).tolist()
        shapes[place + 1_000] = int(shapes[place, 0]) ^ sum(1 << bit for bit in bits)
    assert find_near(shapes, np.zeros_like(shapes), distance) == {row: row % 1_000 for row in range(2_000)}


def test_a_chain_is_one_component() -> None:
    nodes = np.random.default_rng(0).permutation(1_000)
    joined = Components(1_000)
    joined.join(nodes[1:], nodes[:-1])
    assert (joined.roots == 0).all()
