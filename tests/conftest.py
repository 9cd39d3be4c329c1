"""What several test modules look at: built once a session."""

from pathlib import Path

import pytest

from pipeline.build import Published, build
from tests.every_kind import make

ROWS = 1_100


def build_every_kind(folder: Path) -> Published:
    """Builds the dataset of every kind below a folder: its inputs in `in`, the dataset in `out`."""
    return build(make(folder / "in", ROWS, more_images=True), str(folder / "out"))


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Published]:
    """The folder of inputs and dataset, and what was published."""
    folder = tmp_path_factory.mktemp("every_kind")
    return folder, build_every_kind(folder)
