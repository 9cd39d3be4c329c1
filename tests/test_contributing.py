"""CONTRIBUTING.md counts the files that a change touches as the tree does."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEWEST = "array"
MENTIONS = r"\bArray(Options|Description)\b|kind: array\b|\barrays\.md\b|\bfeatures\.array\b"


def test_a_kind_touches_the_files_that_its_row_names() -> None:
    (row,) = re.findall(r"^\| a kind of feature \|(.*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    named = {path.replace("<kind>", NEWEST) for path in re.findall(r"`([\w/<>]+\.\w+)`", row)}
    others = {"CHANGELOG.md", "tests/test_contributing.py"}
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    files = [path for path in done.stdout.decode().split() if path.endswith((".py", ".md", ".yml"))]
    touched = {
        path
        for path in files
        if not (ROOT / path).is_symlink() and path not in others and re.search(MENTIONS, (ROOT / path).read_text())
    }
    assert touched == named
    (count,) = re.findall(r"(\d+) files, and", row)
    assert len(touched) == int(count) + 2
