"""Temporary folders of this process, by a name that lets a process remove them that ends at once."""

import os
import shutil
import tempfile
from pathlib import Path


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """Makes a temporary folder."""
    return tempfile.TemporaryDirectory(prefix=_prefix())


def remove_own_folders() -> None:
    """Removes all of this process, which a signal ends before their own clean-up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _prefix() -> str:
    return f"recordmill-flink-{os.getpid()}-"
