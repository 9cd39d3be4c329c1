"""docs/guarantees.md: each promise names tests, and these are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")


def test_every_promise_names_a_test() -> None:
    promises = PAGE.partition("## Figures")[0].splitlines()
    rows = [line for line in promises if line.startswith("|") and not line.startswith(("| promise", "|---"))]
    assert len(rows) > 20
    assert [row for row in rows if "::test_" not in row] == []


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(test_\w+)::(test_\w+)`", PAGE)
    missing = [f"{file}::{name}" for file, name in named if not _is_there(ROOT / f"tests/{file}.py", name)]
    assert missing == []


def _is_there(file: Path, name: str) -> bool:
    return file.exists() and f"def {name}(" in file.read_text(encoding="utf-8")
