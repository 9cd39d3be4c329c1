"""A manifest with texts of 100,000 letters: every command prints a few lines, without repeating the text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordmill.dataset import open_dataset
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import LATEST_FILE, MANIFEST_FILE, read_manifest
from recordmill.pipeline.errors import MOST_MESSAGE, DatasetError
from tests.messages import raises
from tests.published import VERSION, write_version

LONG = "a" * 100_000
COMMANDS = {
    "show": ["show", "OUT"],
    "versions": ["versions", "list", "OUT"],
    "verify": ["verify", "OUT"],
    "head": ["head", "OUT"],
    "diff": ["diff", "OUT", VERSION, VERSION],
    "report": ["report", "OUT", "--output", "OUT/../page.html"],
}


def rename(values: dict[str, Any], name: str) -> None:
    values[LONG] = values.pop(name)


def lengthen(manifest: Any, what: str) -> None:
    """Makes one text of a manifest long."""
    shard = manifest["splits"]["train"]["shards"][0]
    match what:
        case "a feature":
            rename(manifest["features"], "text")
        case "a label that is no feature":
            manifest["label"] = LONG
        case "a kind":
            manifest["features"]["price"]["kind"] = LONG
        case "a split":
            rename(manifest["splits"], "train")
        case "a shard":
            shard["file"] = LONG
        case "a shard in parts":
            shard["file"] = LONG.replace("aa", "a/")[:-1]
        case "a version":
            shard["version"] = LONG
        case "a number":
            shard["records"] = LONG
        case "a URL":
            manifest["name"] = f"s3://{LONG}:{LONG}"
        case _:
            manifest[what] = LONG


def change(output: Path, by: Callable[[Any], None]) -> Path:
    """Writes a version whose manifest is changed; returns its folder."""
    folder = write_version(output, rows=20)
    by(manifest := json.loads((folder / MANIFEST_FILE).read_text()))
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    return folder


WHAT = ["a feature", "a label that is no feature", "a kind", "a split", "a shard", "a shard in parts", "a version"]
WHAT += ["a number", "a URL", "name", "build_key"]


@pytest.mark.parametrize("what", WHAT)
def test_each_command_ends_in_some_lines(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(tmp_path / "out", lambda manifest: lengthen(manifest, what))
    for command in COMMANDS.values():
        arguments = [each.replace("OUT", str(tmp_path / "out")) for each in command]
        with pytest.raises(SystemExit):
            main(arguments)
        printed = capsys.readouterr()
        assert len(printed.err) <= MOST_MESSAGE + 1_000
        assert "Traceback" not in printed.err
        assert printed.out.replace("\n", "").replace(" ", "").count(LONG) <= 6, command  # in a table's cells, once each


@pytest.mark.parametrize("what", ["a label that is no feature", "a shard in parts", "a version", "a number"])
def test_the_reader_says_what_is_wrong_in_a_line(what: str, tmp_path: Path) -> None:
    change(tmp_path / "out", lambda manifest: lengthen(manifest, what))
    with pytest.raises(DatasetError) as raised:
        next(iter(open_dataset(tmp_path / "out").records()))
    assert len(str(raised.value)) <= MOST_MESSAGE


def test_an_unknown_name_beside_many_long_ones_is_a_line(tmp_path: Path) -> None:
    more = {f"{'a' * 90}{number}": {"records": 0, "bytes": 0, "shards": []} for number in range(1_000)}
    folder = change(tmp_path / "out", lambda manifest: manifest["splits"].update(more))
    with raises(DatasetError, "'tst'", "`test`") as raised:
        read_manifest(str(folder)).split("tst")
    assert len(str(raised.value)) < 2_000


def test_a_long_name_in_latest_is_a_line(tmp_path: Path) -> None:
    write_version(tmp_path / "out", rows=20)
    (tmp_path / "out" / LATEST_FILE).write_text(json.dumps({"version": LONG, "sequence": 1}))
    with pytest.raises(DatasetError) as raised:
        open_dataset(tmp_path / "out")
    assert len(str(raised.value)) <= MOST_MESSAGE


@pytest.mark.parametrize("feature", ["n", "m"])
@pytest.mark.parametrize(
    ("format_", "data"), [("csv", f"n,{LONG * 3}\n1,2\n"), ("jsonl", f'{{"n": 1, "{LONG * 3}": 2, "{LONG * 3}": 3}}\n')]
)
def test_a_plan_of_a_long_column_ends_in_some_lines(
    format_: str, data: str, feature: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows").write_text(data)
    spec = f"name: a\nsource: {{format: {format_}, path: rows}}\nfeatures: {{{feature}: {{kind: number}}}}\n"
    (tmp_path / "dataset.yaml").write_text(spec)
    with pytest.raises(SystemExit):
        main(["plan", str(tmp_path / "dataset.yaml")])
    printed = capsys.readouterr()
    assert len(printed.err + printed.out) < 5_000
    assert "Traceback" not in printed.err
