"""The JSON Schema of the spec: accepts what a build accepts, refuses what an editor should mark, explains each key."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.spec.model import EDITOR_LINE, SCHEMA_FILE, schema_text

ROOT = Path(__file__).parents[1]
TOOLS = os.environ.get("RECORDMILL_DOCS_TOOLS")
"""A Python with the packages of docs/tools.lock: `make test-docs` sets it."""
SMALL: dict[str, Any] = {
    "name": "a",
    "source": {"format": "jsonl", "path": "a.jsonl"},
    "features": {"n": {"kind": "number"}},
}
BROKEN: dict[str, dict[str, Any]] = {
    "an unknown key": {**SMALL, "lable": "n"},
    "no features": {name: value for name, value in SMALL.items() if name != "features"},
    "an unknown kind": {**SMALL, "features": {"n": {"kind": "nunber"}}},
    "an option of another kind": {**SMALL, "features": {"n": {"kind": "number", "size": 8}}},
    "a share below 0": {**SMALL, "splits": {"train": -1}},
    "a word for a number": {**SMALL, "shards": "many"},
    "an unknown format": {**SMALL, "source": {"format": "xls", "path": "a"}},
    "a homepage without a scheme": {**SMALL, "about": {"homepage": "example"}},
}
VALIDATE = """
import json, sys, jsonschema
schema, *specs = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
print(json.dumps([[error.message[:200] for error in validator.iter_errors(spec)] for spec in specs]))
"""


def problems_of(*specs: Any) -> list[list[str]]:
    assert TOOLS is not None
    given = json.dumps([json.loads(schema_text()), *specs])
    done = subprocess.run([TOOLS, "-c", VALIDATE], input=given, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.skipif(TOOLS is None, reason="needs jsonschema: make test-docs")
def test_every_spec_of_ours_is_accepted() -> None:
    specs = {str(path): path.read_text() for path in ROOT.glob("examples/*/dataset.yaml")}
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        specs |= {f"{page}#{number}": block for number, block in enumerate(blocks)}
    read = {name: yaml.safe_load(text) for name, text in specs.items()}
    whole = {name: spec for name, spec in read.items() if isinstance(spec, dict) and SMALL.keys() <= spec.keys()}
    assert len(whole) >= 14
    assert dict(zip(whole, problems_of(*whole.values()), strict=True)) == dict.fromkeys(whole, [])


@pytest.mark.skipif(TOOLS is None, reason="needs jsonschema: make test-docs")
def test_a_broken_spec_is_marked() -> None:
    assert problems_of(SMALL) == [[]]
    found = dict(zip(BROKEN, problems_of(*BROKEN.values()), strict=True))
    assert [name for name, problems in found.items() if not problems] == []


def test_the_command_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = schema_text()
    app(["schema"], standalone_mode=False)
    assert capsys.readouterr().out == expected
    app(["schema", "--output", str(tmp_path / SCHEMA_FILE)], standalone_mode=False)
    assert (tmp_path / SCHEMA_FILE).read_text() == expected


def test_init_names_the_schema_that_it_writes_beside_the_spec(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n' * 9)
    app(["init", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "dataset.yaml")], standalone_mode=False)
    first, _ = (tmp_path / "dataset.yaml").read_text().split("\n", 1)
    assert f"{first}\n" == EDITOR_LINE == f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
    assert json.loads((tmp_path / SCHEMA_FILE).read_text())["properties"].keys() >= SMALL.keys()
