"""Every night's live version equals a full build of that night's data, whatever happened to the data and to builds.

The seed and the number of nights: RECORDMILL_SEED, RECORDMILL_NIGHTS.
"""

import os
from pathlib import Path

import pytest

from recordmill.pipeline.verify.verify import verify
from tests.nights import OK, Nights

SEED = int(os.environ.get("RECORDMILL_SEED", "14"))
NIGHTS = int(os.environ.get("RECORDMILL_NIGHTS", "365"))


def simulate(nights: Nights, count: int, *, compact_each: int = 30) -> None:
    while nights.number < count:
        nights.night()
        if nights.number % compact_each == 0:
            assert nights.build("--compact", may_die=True) in OK, nights.printed()
            nights.check_rows()
            if nights.normalize != "none":  # a frozen graph is not that of a full build
                nights.full_build()
                nights.check_bytes()
        if nights.number % 10 == 0:
            assert verify(str(nights.folder / "out"), quick=True).is_whole


@pytest.mark.nightly
def test_four_nights_with_a_frozen_analysis(tmp_path: Path) -> None:
    simulate(Nights(tmp_path, SEED, "frozen", "none"), 4)


@pytest.mark.nightly
def test_four_nights_with_an_analysis_that_follows(tmp_path: Path) -> None:
    simulate(Nights(tmp_path, SEED, "refresh", "z_score"), 4, compact_each=2)


@pytest.mark.nightly
def test_four_nights_of_files_that_are_added_to_a_folder(tmp_path: Path) -> None:
    simulate(Nights(tmp_path, SEED, "frozen", "none", "*/*.jsonl"), 4)


@pytest.mark.nightly
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize(
    ("analysis", "normalize", "path"),
    [("frozen", "none", "{span}/*.jsonl"), ("refresh", "z_score", "{span}/*.jsonl"), ("frozen", "none", "*/*.jsonl")],
    ids=["frozen", "refresh", "added"],
)
def test_a_year_of_nights(tmp_path: Path, analysis: str, normalize: str, path: str) -> None:
    simulate(Nights(tmp_path, SEED, analysis, normalize, path), NIGHTS, compact_each=15)
