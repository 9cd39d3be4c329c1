"""Beam's Prism at the version of the SDK, compiled once from its Go module into `.runners/prism`."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import apache_beam
import pytest

from recordmill.pipeline.build.beam import runners

FOLDER = Path(__file__).parents[1] / ".runners/prism"
MODULE = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{apache_beam.__version__}"


def compiled() -> Path:
    """Gives the program; the first time, compiling it takes some minutes of CPU. Skips without a Go toolchain."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Prism is compiled by a Go toolchain, and there is no go on PATH")
    FOLDER.mkdir(parents=True, exist_ok=True)
    program = FOLDER / f"prism-{apache_beam.__version__}"
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            command = ["nice", go, "install", MODULE]
            subprocess.run(command, env=os.environ | {"GOBIN": str(FOLDER), "GOFLAGS": "-p=1"}, check=True)
            (FOLDER / "prism").rename(program)
    return program


def use_threads(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Lets a build's workers have this many threads, whatever the machine."""
    monkeypatch.setattr(runners, "worker_threads", lambda processes: count)
