"""CONTRIBUTING.md counts the files that a change touches as the tree does."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEWEST = "array"
KIND = r"\bArrayDescription\b|kind: array\b|(?<!sources/)\barrays\.md\b|\bvalues_spec import Array\b"
OF_COLUMNS = r"\b(column|known|self|wanted)\.array\b(?!\()|\bname: str, layout: ArrayLayout\b"
COLUMN_TYPE = rf"\bColumnType\.ARRAY\b|\bARRAY = .array\b|{OF_COLUMNS}"


def row_of(change: str) -> tuple[str, set[str]]:
    """Returns a row of the table, and the files that it names."""
    (row,) = re.findall(rf"^\| {change}\b[^|]*\|(.*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    paths = re.findall(r"`([\w/<>]+\.\w+)`", row)
    return row, {path.replace("<kind>", NEWEST).replace("<type>", NEWEST) for path in paths}


def touched(mentions: str) -> set[str]:
    """Returns the files that mention the newest kind, or its column type."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    files = {path for path in done.stdout.decode().split() if path.endswith((".py", ".md", ".yml"))}
    files -= {"CHANGELOG.md", "tests/test_contributing.py"}
    existing = [path for path in files if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]
    return {path for path in existing if re.search(mentions, path + (ROOT / path).read_text())}


def test_a_kind_touches_the_files_that_its_row_names() -> None:
    row, named = row_of("a kind of feature")
    assert touched(KIND) == named
    (count,) = re.findall(r"(\d+) files, and", row)
    assert len(named) == int(count) + 3


def test_a_column_type_touches_the_files_that_its_row_names() -> None:
    (row, named), (_, of_kind) = row_of("a column type"), row_of("a kind of feature")
    assert touched(COLUMN_TYPE) - of_kind == named
    (count, in_all) = re.findall(r"(\d+) files, with those of its kind (\d+)", row)[0]
    assert (len(named), len(named | of_kind) - 3) == (int(count), int(in_all))
    assert int(in_all) <= 18
