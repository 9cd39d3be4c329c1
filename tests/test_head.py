"""`recordmill head` and `show --json`: records and versions as a person, and a program, reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.inspection.values import LONGEST, shown, to_json
from recordmill.transforms.contract.kinds.boxes import Box
from recordmill.transforms.contract.kinds.number import Bucket
from recordmill.transforms.contract.kinds.text import DecodedText
from tests import published
from tests.messages import assert_names


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    published.write_version(folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[list[str], str]:
        with pytest.raises(SystemExit):
            main(arguments)
        printed = capsys.readouterr()
        return printed.out.splitlines(), printed.err

    return run


def test_the_page_of_the_docs_is_what_is_printed(run: Any, output: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/inspect.md").read_text(encoding="utf-8")
    block = page.split("$ recordmill head out/small --key row/7\n")[1].split("```")[0].splitlines()
    lines, _ = run("head", str(output), "--key", "row/7")
    assert lines == block


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--key", "row/1000"], ("row/1000", "--record row/1000`")),
        (["--class", "drak"], ("drak", "`dark`")),
        (["--version", "#7"], ("'#7'",)),
    ],
)
def test_head_names_what_is_not_there(run: Any, output: Path, arguments: list[str], facts: tuple[str, ...]) -> None:
    lines, error = run("head", str(output), *arguments)
    assert lines == []
    assert_names(error, *facts)
    assert "Traceback" not in error


def test_show_json_gives_the_manifest_and_the_versions(run: Any, output: Path) -> None:
    lines, _ = run("show", str(output), "--json")
    shown_ = json.loads("\n".join(lines))
    assert shown_["splits"]["train"]["shards"] == published.LAYOUT.shards["train"]
    assert shown_["features"].keys() == published.FEATURES.keys()
    [version] = shown_["versions"]
    assert (version["version"], version["live"], version["records"]) == (published.VERSION, True, 200)
    _, error = run("show", str(output), "--json", "--record", "row/7")
    assert "recordmill head" in error


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_of_rejects_is_one_line(run: Any, tmp_path: Path, damage: bytes) -> None:
    folder = published.write_version(tmp_path)
    assert_names(run("show", str(tmp_path), "--record", "bad/1")[0], "bad/1", "missing_value")
    (folder / published.REJECTS).write_bytes(b'{"id": null}\n' + damage)
    _, error = run("show", str(tmp_path), "--record", "bad/1")
    assert_names(" ".join(error.split()), f"{published.REJECTS}, line 2", "`recordmill verify`")


@pytest.mark.parametrize(
    ("value", "text", "as_json"),
    [
        (None, "-", None),
        (0.1, "0.1", 0.1),
        (float("-inf"), "-inf", "-Infinity"),
        ([], "none", []),
        (list(range(20)), "0, 1, 2, 3, 4, 5, 6, 7, … (20 values)", list(range(20))),
        (Box(0.0, 0.25, 0.5, 1.0), "[0 0.25 0.5 1]", [0.0, 0.25, 0.5, 1.0]),
        (Bucket(0, float("-inf"), 2.5), "0 [-inf, 2.5)", {"bucket": 0, "from": None, "below": 2.5}),
        (DecodedText((5, 7), None, None), "5 7", [5, 7]),
        (b"a\nb", "a\\nb", "a\nb"),
        (b"\xff\x00", "2 bytes: ff 00", {"base64": "/wA="}),
    ],
)
def test_a_value_is_one_line_and_json(value: Any, text: str, as_json: Any) -> None:
    assert shown(value) == text
    assert to_json(value) == as_json


def test_a_long_text_is_cut() -> None:
    assert shown("x" * 5_000) == "x" * (LONGEST - 1) + "…"
