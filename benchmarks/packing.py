"""Measures the padding of packed rows, and the time to pack, beside the packers of TRL and Grain.

    python benchmarks/packing.py [LENGTH]

Documents have the sizes of The Pile: raw size and mean document size of each part are those of Table 1 of Gao et al.
(2020), 4 bytes a token, log-normal within a part (sigma 1). Longer documents are cut at LENGTH, as by all three.
TRL's `pack_dataset(strategy="bfd")` is best-fit decreasing over each 1,000 examples that `Dataset.map` hands over: here
that algorithm without `datasets`, which it needs. Grain's packers run themselves where Grain is installed.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from measure import ROOT

sys.path.insert(0, str(ROOT))

from recordmill.pipeline.dataset.tfrecord import pack  # noqa: E402

try:
    import grain.python
    from grain import experimental
except ImportError:
    experimental = None

Lengths = npt.NDArray[np.int64]
DOCUMENTS, MAP_BATCH, BINS, OF_GRAIN = 400_000, 1_000, 64, 40_000
PILE = """Pile-CC 227.12 4.33, PubMed-Central 90.27 30.55, Books3 100.96 538.36, OpenWebText2 62.77 3.85,
ArXiv 56.21 46.61, Github 95.16 5.25, FreeLaw 51.15 15.06, StackExchange 32.20 2.16, USPTO 22.90 4.08,
PubMed-Abstracts 19.26 1.30, Gutenberg 10.88 398.73, OpenSubtitles 12.98 30.48, Wikipedia 6.38 1.11,
DM-Mathematics 7.75 8.00, Ubuntu-IRC 5.52 545.48, BookCorpus2 6.30 369.87, EuroParl 4.59 68.87, HackerNews 3.90 4.92,
YoutubeSubtitles 3.73 22.55, PhilPapers 2.38 73.37, NIH-ExPorter 1.89 2.11, Enron 0.88 1.78"""
"""Raw size in GiB, and mean document size in KiB."""


def documents(count: int) -> Lengths:
    """Draws documents' lengths in tokens, in random order."""
    random = np.random.default_rng(0)
    sizes, means = np.array([part.split()[1:] for part in PILE.split(",")], float).T
    of = random.choice(len(means), count, p=(sizes / means) / (sizes / means).sum())
    drawn = random.lognormal(np.log(means[of] * 1024 / 4) - 0.5, 1.0)
    lengths: Lengths = np.maximum(drawn.astype(np.int64), 1)
    return lengths


def trl(lengths: Lengths, width: int) -> int:
    """Counts the rows of best-fit decreasing, batch by batch."""
    batches = np.split(lengths, range(MAP_BATCH, len(lengths), MAP_BATCH))
    return sum(len(pack(batch, width, split=False).splits) - 1 for batch in batches)


def of_grain(name: str) -> Callable[[Lengths, int], int]:
    """Returns a counter of a Grain packer's rows, of 64 bins."""

    def rows(lengths: Lengths, width: int) -> int:
        source = grain.python.MapDataset.source(np.minimum(lengths, width))
        texts = source.map(lambda length: {"ids": np.zeros(length, np.int32)}).to_iter_dataset()
        packed = getattr(experimental, name)(texts, length_struct={"ids": width}, num_packing_bins=BINS)
        return sum(1 for _ in packed)

    return rows


def main() -> None:
    """Prints each packer's padding and speed."""
    width = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    lengths = documents(DOCUMENTS)
    beyond = (lengths > width).mean()
    print(f"{len(lengths):,} documents, mean {lengths.mean():,.0f} tokens, {beyond:.1%} beyond {width:,}")
    packers: dict[str, Callable[[Lengths, int], int]] = {
        "Recordmill": lambda each, width: len(pack(each, width, split=False).splits) - 1,
        "TRL's bfd, by 1,000": trl,
    }
    for name in ("FirstFitPackIterDataset", "BestFitPackIterDataset") if experimental else ():
        packers[f"Grain's {name}"] = of_grain(name)
    for name, rows_of in packers.items():
        some = lengths[:OF_GRAIN] if name.startswith("Grain") else lengths  # it fills arrays, too
        begun = time.perf_counter()
        rows = rows_of(some, width)
        seconds = time.perf_counter() - begun
        padding = 1 - np.minimum(some, width).sum() / (rows * width)
        print(f"{name:<34} {padding:7.2%} padding, {len(some) / seconds:>9,.0f} documents/s")


if __name__ == "__main__":
    main()
