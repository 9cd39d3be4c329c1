"""Every pinned package was looked up among known vulnerabilities: a changed lock needs a new audit."""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AUDIT = json.loads((ROOT / ".ci/audit.json").read_text())
LOCKS = [
    ".ci/release.lock", ".ci/tensorflow.lock", ".ci/uv.lock", "benchmarks/reader/requirements.lock",
    "deploy/checks.lock", "deploy/container/requirements.lock", "docs/migrate/tools.lock", "docs/tools.lock",
    "examples/frameworks/requirements.lock", "requirements.lock",
]  # fmt: skip
ADVISORY = """
id: PYSEC-1
affected:
- package: {ecosystem: PyPI, name: some-package}
  ranges: [{type: GIT, events: [{introduced: "0"}]}, {type: ECOSYSTEM, events: [EVENTS]}]
  versions: [VERSIONS]
"""


def pinned(lock: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+==[\w.!+-]+)", (ROOT / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_was_looked_up(lock: str) -> None:
    new = pinned(lock) - {*AUDIT["packages"]}
    assert not new, f"{lock} has packages that were not looked up on {AUDIT['date']}: make audit"


def test_the_audit_is_of_these_locks_and_nothing_that_it_found_is_left_open() -> None:
    assert {*AUDIT["packages"]} == set().union(*map(pinned, LOCKS)), "make audit"
    assert date.fromisoformat(AUDIT["date"]) <= date.today()
    assert {one for ids in AUDIT["found"].values() for one in ids} <= AUDIT["accepted"].keys()


def test_pillow_is_13_or_newer_in_every_lock() -> None:
    versions = {pin for lock in LOCKS for pin in pinned(lock) if pin.startswith("pillow==")}
    assert versions
    assert all(int(re.split(r"==|\.", pin)[1]) >= 13 for pin in versions)


def run(folder: Path, *arguments: str) -> tuple[int, dict[str, list[str]]]:
    """Audits a repository of one lock, `Some.Package==1.5`; returns the status and what was found."""
    (folder / ".ci").mkdir(exist_ok=True)
    (folder / "requirements.lock").write_text("Some.Package==1.5 ; python_version < '3.13' \\\n    --hash=sha256:00\n")
    for command in (["init", "-q"], ["add", "requirements.lock"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    command = [sys.executable, str(ROOT / ".ci/audit"), *arguments]
    status = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode
    return status, json.loads((folder / ".ci/audit.json").read_text())["found"]


@pytest.mark.parametrize(
    ("events", "versions", "is_found"),
    [
        ('{introduced: "0"}', "", True),
        ('{introduced: "0"}, {fixed: "1.5"}', "", False),
        ('{introduced: "0"}, {fixed: "1.10"}', "", True),
        ('{introduced: "0"}, {last_affected: "1.5"}', "", True),
        ('{introduced: "0"}, {last_affected: "1.4"}', "", False),
        ('{introduced: "0"}, {fixed: "1.1"}, {introduced: "1.3"}, {fixed: "1.6"}', "", True),
        ('{introduced: "1.6"}', "", False),
        ("", "'1.5'", True),
        ("", "'1.4', '1.50'", False),
    ],
)
def test_an_advisory_names_versions_or_ranges(tmp_path: Path, events: str, versions: str, is_found: bool) -> None:
    database = tmp_path / "database"
    (database / "vulns/some-package").mkdir(parents=True)
    text = ADVISORY.replace("EVENTS", events).replace("VERSIONS", versions)
    (database / "vulns/some-package/PYSEC-1.yaml").write_text(text)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(database), *command], check=True)
    assert run(tmp_path, "--database", str(database)) == (
        is_found,
        {"Some.Package==1.5": ["PYSEC-1"]} if is_found else {},
    )


def answer_by_pip_audit(folder: Path, **answer: object) -> None:
    """Puts a pip-audit on PATH that says so of the lock's package."""
    answers = {"dependencies": [{"name": "some-package", **answer}]}
    tool = folder / "bin/pip-audit"
    tool.parent.mkdir()
    words = f"[ $1 = --version ] && exec echo pip-audit 2\ncat <<'END'\n{json.dumps(answers)}\nEND\nexit 1\n"
    tool.write_text(f"#!{shutil.which('sh')}\n{words}")
    tool.chmod(0o755)


def test_pip_audits_answer_is_taken(tmp_path: Path) -> None:
    answer_by_pip_audit(tmp_path, version="1.5", vulns=[{"id": "PYSEC-2"}])
    assert run(tmp_path) == (1, {"some-package==1.5": ["PYSEC-2"]})
    result = json.loads((tmp_path / ".ci/audit.json").read_text()) | {
        "accepted": {"PYSEC-2": "its part is not installed"}
    }
    (tmp_path / ".ci/audit.json").write_text(json.dumps(result))
    assert run(tmp_path)[0] == 0


def test_a_package_that_was_not_looked_up_ends_the_audit(tmp_path: Path) -> None:
    answer_by_pip_audit(tmp_path, skip_reason="some-package (1.5) could not be audited")
    with pytest.raises(FileNotFoundError):  # no result is written
        run(tmp_path)
