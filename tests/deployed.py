"""The environment of `make test-deploy`: programs that validate what lies in deploy/."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def checker(name: str) -> str:
    """The path of a program; skips the test without the environment."""
    folder = os.environ.get("RECORDMILL_DEPLOY_CHECKS")
    if not folder:
        pytest.skip("RECORDMILL_DEPLOY_CHECKS names no environment of deploy/checks.lock: make test-deploy")
    return str(Path(folder) / name)


def check(name: str, *arguments: str | Path) -> None:
    """Runs a program; fails with its output."""
    ended = subprocess.run([checker(name), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
