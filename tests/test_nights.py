"""Every night's live version equals a full build of that night's data, whatever happened to the data and to builds.

The seed and the number of nights: RECORDMILL_SEED, RECORDMILL_NIGHTS. A year of nights takes an hour.
"""

import os
from pathlib import Path

import pytest

from recordmill.pipeline.verify.verify import verify
from tests.nights import OK, Nights

SEED = int(os.environ.get("RECORDMILL_SEED", "14"))
NIGHTS = int(os.environ.get("RECORDMILL_NIGHTS", "12"))


@pytest.mark.nightly
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize(
    ("analysis", "normalize", "path"),
    [("frozen", "none", "{span}/*.jsonl"), ("refresh", "z_score", "{span}/*.jsonl"), ("frozen", "none", "*/*.jsonl")],
    ids=["frozen", "refresh", "added"],
)
def test_each_night_is_a_full_build(tmp_path: Path, analysis: str, normalize: str, path: str) -> None:
    nights = Nights(tmp_path, SEED, analysis, normalize, path)
    while nights.number < NIGHTS:
        nights.night()
        if nights.number % 10 == 6:
            assert nights.build("--compact", may_die=True) in OK, nights.printed()
            nights.check_rows()
            if nights.normalize != "none":  # a frozen graph is not that of a full build
                nights.full_build()
                nights.check_bytes()
        if nights.number % 10 == 0:
            assert verify(str(nights.folder / "out"), quick=True).is_whole
