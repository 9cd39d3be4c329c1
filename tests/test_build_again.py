"""`recordmill build --again` reads unchanged sources, and publishes only if other rows are rejected than before."""

import errno
import json
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.make_version import NothingMendedError
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.errors import UserError, code_of
from recordmill.pipeline.spec.model import load_spec, parse_spec
from recordmill.pipeline.versions.publishing import Published
from tests.messages import raises

pytestmark = pytest.mark.slow


def built(folder: Path, *, again: bool = True) -> Published:
    """Builds the texts of a folder."""
    spec = parse_spec(
        f"name: d\nsource: {{format: text, path: {folder}/in, document: file}}\nsplits: {{train: 100}}\n"
        "rejects: {max_share: 1}\nfeatures: {text: {kind: text}}"
    )
    return build(spec, str(folder / "out"), RunOptions(again=again))


def test_a_file_that_can_be_read_again_is_in_the_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / f"in/{name}.txt").write_text(f"text {name}")
    open_file = BeamFiles.open

    def refuse(files: BeamFiles, path: str) -> BinaryIO:
        if path.endswith("/b.txt"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_file(files, path)

    with monkeypatch.context() as patch:
        patch.setattr(BeamFiles, "open", refuse)
        first = built(tmp_path, again=False)
        assert first.manifest.rejects["by_reason"] == {"unreadable": 1}
        with raises(NothingMendedError, "1 rows", first.manifest.version, "rejected again"):
            built(tmp_path)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["LATEST", "history.jsonl", "versions"]
    second = built(tmp_path)
    assert (second.is_new, second.manifest.rows["written"], second.manifest.rows["rejected"]) == (True, 2, 0)
    assert not built(tmp_path).is_new  # it has no rejects


def row(number: int, **changes: Any) -> str:
    return json.dumps({"id": f"k{number}", "label": "cat"} | changes)


def run(folder: Path, *, again: bool = False) -> Published:
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"), RunOptions(again=again))


def test_from_a_limit_to_a_mended_version(tmp_path: Path) -> None:
    source = "name: pets\nsource: {format: jsonl, path: rows.jsonl}\nkey: id\nfeatures: {label: {kind: category}}\n"
    good = [row(number) for number in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*good, row(41, label=None)]))
    (tmp_path / "dataset.yaml").write_text(source)
    with raises(UserError, "1 of 41 rows", "2.4%", "rejects.max_share allows 1.0%") as over:
        run(tmp_path)
    assert code_of(over.value) == 5
    assert not (tmp_path / "out/LATEST").exists()
    (tmp_path / "dataset.yaml").write_text(f"{source}rejects: {{max_share: 0.05}}\n")
    assert run(tmp_path).is_new
    with raises(NothingMendedError, "rejected again") as same:
        run(tmp_path, again=True)
    assert code_of(same.value) == 3
    (tmp_path / "rows.jsonl").write_text("\n".join([*good, row(41)]))
    assert run(tmp_path, again=True).is_new
