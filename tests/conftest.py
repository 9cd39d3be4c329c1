"""What several test modules look at: built once a session."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from pipeline.build import Published, build
from tests.every_kind import make

ROWS = 1_100

# A loaded machine is no failure; and CI tries the same examples each time, people new ones.
settings.register_profile("people", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "people")


def build_every_kind(folder: Path) -> Published:
    """Builds the dataset of every kind below a folder: its inputs in `in`, the dataset in `out`."""
    return build(make(folder / "in", ROWS, more_images=True), str(folder / "out"))


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Published]:
    """The folder of inputs and dataset, and what was published."""
    folder = tmp_path_factory.mktemp("every_kind")
    return folder, build_every_kind(folder)
