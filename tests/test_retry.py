"""Rows that a version rejected are looked at again; a build follows only where that is worth it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.retry import Retried, look_again
from recordmill.pipeline.dataset.manifest import DatasetError, Latest, Manifest, Split
from recordmill.pipeline.spec.model import Spec, parse_spec
from tests.forked import recordmill

SPEC = """
name: pets
source:
- {{format: jsonl, path: {folder}/rows.jsonl}}
- {{format: image_folder, path: {folder}/pictures}}
features:
  image: {{kind: image, size: [8, 8], optional: true}}
  label: {{kind: category}}
"""
VERSION = "20261121T120000Z-0a1b2c3d"


def row(number: int, **changes: Any) -> str:
    return json.dumps({"id": f"k{number}", "label": "cat"} | changes)


def reject(line: int | None, code: str, file: str = "rows.jsonl", **more: Any) -> dict[str, Any]:
    return {"id": "k", "column": None, "code": code, "message": "", "source": int(line is None), "file": file,
            "line": line} | more  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Rows and pictures, all of them good but line 4, which is blank."""
    (tmp_path / "pictures/cat").mkdir(parents=True)
    for name in ("a", "b"):
        Image.new("RGB", (9, 7), (200, 30, 90)).save(tmp_path / f"pictures/cat/{name}.png")
    lines = [row(1), row(2), row(3, image="pictures/cat/a.png"), "", row(5)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    return parse_spec(SPEC.format(folder=tmp_path))


def live(folder: Path, *rejects: dict[str, Any] | str, name: str = "pets") -> str:
    """A live version with these rejects."""
    out = folder / "out"
    version = out / "versions" / VERSION
    (version / "rejects").mkdir(parents=True)
    file = "rejects/rejected-00000-of-00001.jsonl"
    lines = (one if isinstance(one, str) else json.dumps(one) for one in rejects)
    (version / file).write_text("".join(f"{line}\n" for line in lines))
    manifest = Manifest(
        name=name, version=VERSION, build_key="0", label=None, features={"label": {"kind": "raw"}},
        splits={"train": Split(())},
        statistics={}, rows={"read": 9, "written": 9, "rejected": 0}, sources=(), spec={}, provenance={},
        rejects={"by_reason": {}, "files": [{"file": file}] if rejects else []},
    )  # fmt: skip
    (version / "dataset.json").write_text(manifest.to_text())
    (out / "LATEST").write_text(Latest(VERSION, 1).to_text())
    return str(out)


def counts(spec: Spec, output: str) -> dict[str, tuple[int, int, int]]:
    """Of each code how many rows are good, bad and gone."""
    found = look_again(spec, output, BeamFiles(), 2)
    return {code: (each["good"], each["bad"], each["gone"]) for code, each in found.by_code.items()}


def test_each_row_is_good_or_bad_or_gone(spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "pictures/cat/b.png").write_bytes((tmp_path / "pictures/cat/b.png").read_bytes()[:60])
    (tmp_path / "rows.jsonl").write_text("\n".join([row(1), "{", row(3, image="none.png"), "", row(5, label=None)]))
    output = live(
        tmp_path,
        reject(1, "wrong_type"),
        reject(2, "malformed_row"),
        reject(3, "unreadable"),
        reject(4, "invalid_utf8"),  # the line is blank now
        reject(5, "missing_value"),
        reject(9, "missing_value"),  # there is no such line any more
        reject(None, "undecodable_image", "cat/a.png"),
        reject(None, "undecodable_image", "cat/b.png"),
        reject(None, "unreadable", "cat/c.png"),
    )
    assert counts(spec, output) == {
        "missing_value": (0, 1, 1),
        "undecodable_image": (1, 1, 0),
        "unreadable": (0, 1, 1),
        "invalid_utf8": (0, 0, 1),
        "malformed_row": (0, 1, 0),
        "wrong_type": (1, 0, 0),
    }


def test_a_key_that_was_taken_is_good_when_it_is_another(spec: Spec, tmp_path: Path) -> None:
    spec = spec.model_copy(update={"source": spec.source[:1], "key": ("id",)})
    output = live(tmp_path, reject(2, "duplicate_key", id="k2"), reject(3, "duplicate_key", id="k2"))
    assert counts(spec, output) == {"duplicate_key": (1, 1, 0)}


def test_lines_are_found_in_whatever_pieces_a_file_is_read(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [row(number, label=None if number % 7 == 0 else "cat") for number in range(1, 401)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    output = live(tmp_path, *(reject(number, "missing_value") for number in range(1, 401)))
    monkeypatch.setattr("recordmill.pipeline.build.retry.make_plan.__defaults__", (1000,))
    monkeypatch.setattr("recordmill.pipeline.build.plan.CHUNK_BYTES", 1000)
    monkeypatch.setattr("recordmill.pipeline.sources.lines.PIECE_BYTES", 300)
    assert counts(spec, output) == {"missing_value": (400 - 57, 57, 0)}


@pytest.mark.parametrize(
    "one",
    [
        reject(1, "wrong_type", "/etc/passwd"),
        reject(1, "wrong_type", "../../secret.jsonl"),
        reject(None, "unreadable", "../secret.png"),
        reject(1, "wrong_type", source=7),
        reject(1, "wrong_type", source=-1),
    ],
)
def test_what_the_plan_does_not_have_is_gone_and_nothing_of_it_is_read(
    spec: Spec, tmp_path: Path, one: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = list[str](), BeamFiles.open
    monkeypatch.setattr(BeamFiles, "open", lambda files, path: opened.append(path) or real(files, path))
    assert counts(spec, live(tmp_path, one)) == {one["code"]: (0, 0, 1)}
    assert not [path for path in opened if "passwd" in path or "secret" in path]


def test_rejects_of_an_earlier_release_are_read(spec: Spec, tmp_path: Path) -> None:
    one = reject(1, "wrong_type")
    one["reason"] = one.pop("code")
    assert counts(spec, live(tmp_path, one)) == {"wrong_type": (1, 0, 0)}


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", "7", '{"code": "a"}', "[" * 100_000, json.dumps(reject(1, "a") | {"line": [1]})]
)
def test_damaged_rejects_are_one_clear_line(spec: Spec, tmp_path: Path, line: str) -> None:
    with pytest.raises(DatasetError, match="rejected-00000-of-00001.jsonl is damaged: build again"):
        look_again(spec, live(tmp_path, line), BeamFiles(), 1)


def test_another_dataset_and_none_at_all(spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has no live version: `recordmill build` makes one"):
        look_again(spec, str(tmp_path / "nowhere"), BeamFiles(), 1)
    with pytest.raises(DatasetError, match="holds the dataset 'toys', and the spec's name is 'pets'"):
        look_again(spec, live(tmp_path, reject(1, "wrong_type"), name="toys"), BeamFiles(), 1)


def test_a_version_without_rejects_is_said_to_have_none(spec: Spec, tmp_path: Path) -> None:
    found = look_again(spec, live(tmp_path), BeamFiles(), 1)
    assert (found.rejects, found.is_worth_a_build) == (0, False)


def test_what_is_said() -> None:
    found = Retried("v1", {"wrong_type": Counter(good=2, bad=1), "a\x1b[2J": Counter(bad=1), "x": Counter(gone=1)})
    assert list(found.lines()) == [
        "2 of the 5 rows that v1 rejected are good now",
        "  wrong_type: 2 of 3",
        "  a\\x1b[2J: 0 of 1",
        "  x: 0 of 1, 1 gone",
    ]
    assert found.is_worth_a_build
    assert Retried("v1", {"x": Counter(gone=1)}).is_worth_a_build
    assert not Retried("v1", {"x": Counter(bad=1)}).is_worth_a_build


def run(folder: Path, command: str) -> tuple[int, str]:
    done = recordmill(command, "dataset.yaml", "--output", "out", cwd=folder)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_from_a_limit_to_a_mended_version(tmp_path: Path) -> None:
    source = "name: pets\nsource: {format: jsonl, path: rows.jsonl}\nkey: id\nfeatures: {label: {kind: category}}\n"
    good = [row(number) for number in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*good, row(41, label=None)]))
    (tmp_path / "dataset.yaml").write_text(source)
    status, said = run(tmp_path, "build")
    assert status == 1
    assert "1 of 41 rows were rejected, 2.4%; rejects.max_share allows 1.0%\n" in said
    assert not (tmp_path / "out/LATEST").exists()
    (tmp_path / "dataset.yaml").write_text(f"{source}rejects: {{max_share: 0.05}}\n")
    status, said = run(tmp_path, "build")
    assert status == 0, said
    status, said = run(tmp_path, "retry")
    assert (status, "0 of the 1 rows" in said, "nothing is mended, so nothing is built" in said) == (1, True, True)
    (tmp_path / "rows.jsonl").write_text("\n".join([*good, row(41)]))
    status, said = run(tmp_path, "retry")
    assert status == 0, said
    assert "1 of the 1 rows" in said
    assert "Published pets" in said
