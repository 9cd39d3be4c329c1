"""A build writes no Python code, and runs none of a stranger's."""

import base64
import hashlib
import os
import pickle
import pickletools
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import SetupOptions

from recordmill.pipeline.build.beam.runners import make_runner
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.sources import user_code
from recordmill.pipeline.sources.user_code import UserCode, UserCodeError, load
from recordmill.pipeline.yaml_document import SpecError, load_yaml
from tests.every_kind import ANALYZED, make
from tests.messages import raises

ROOT = Path(__file__).parents[1]
STARTS = [b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5)]
EXTENSION_TYPE = b"arrow.py_extension_type"  # of Arrow: its metadata is a pickle


def is_pickled(data: bytes) -> bool:
    """Whether some bytes hold a pickle: whole from its protocol's mark to its end, plain or in base 64."""
    if EXTENSION_TYPE in data or data.startswith(b"\x93NUMPY"):
        return True
    for encoded in re.findall(rb"gA[JNSW][A-Za-z0-9+/]{20,}={0,2}", data):
        if is_pickled(base64.b64decode(encoded + b"=" * (-len(encoded) % 4))):
            return True
    places = [found.start() for start in STARTS for found in re.finditer(re.escape(start), data)]
    return any(_has_end(data[place : place + 10_000]) for place in places)


def _has_end(data: bytes) -> bool:
    operations = 0
    try:
        for _ in pickletools.genops(data):
            operations += 1
    except Exception:
        return False
    return operations > 4  # of random bytes a few may be operations


@pytest.mark.parametrize("value", [{"a": [1, 2]}, Path("x"), ["text"] * 9])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_scan_finds_pickles(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert is_pickled(b"\0abc\x80" + data + b"def")
    assert is_pickled(b'{"work": "' + base64.b64encode(data) + b'"}')
    assert not is_pickled(os.urandom(100_000).replace(b"\x80", b""))


@pytest.mark.slow
def test_no_artifact_is_a_pickle(tmp_path: Path) -> None:
    scanned = dict[str, bool]()

    def scan() -> None:
        for path in (tmp_path / "out").rglob("*"):
            if path.is_file():
                bad = path.suffix in (".pkl", ".pickle", ".npy", ".npz", ".pt") or is_pickled(path.read_bytes())
                scanned[str(path.relative_to(tmp_path / "out"))] = bad

    build(make(tmp_path / "in", 200, only=ANALYZED[1:]), str(tmp_path / "out"), listener=Listener(on_publish=scan))
    at_work = len(scanned)
    scan()
    assert [path for path, bad in scanned.items() if bad] == []
    assert 20 < at_work < len(scanned)
    for part in ("scratch/", "reports/", "transform_fn/", "tfrecord", "dataset.json"):
        assert any(part in path for path in scanned), part


@pytest.mark.parametrize("runner", ["local", "PortableRunner"])  # Dataflow's own default differs: `test_dataflow`
def test_the_main_session_is_not_saved(runner: str) -> None:
    options = make_runner(RunOptions(runner)).options
    assert options.view_as(SetupOptions).save_main_session is False


VALUES = {
    "1:" * 200_000 + "1": ("`1:1:1", "in quotes"),  # to the base of 60, with one `int` for each part
    "9" * 500_000: ("number", "500,000 characters", "in quotes"),
    "0x" + "f" * 500_000: ("number", "500,002 characters"),
    "0b_": ("`0b_`", "number", "in quotes"),
    "!!int abc": ("`abc`", "number"),
    "!!bool maybe": ("`maybe`", "boolean"),
    "!!timestamp x": ("`x`", "date"),
    "2026-99-99": ("`2026-99-99`", "date", "in quotes"),
}


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value[:12])
def test_a_value_that_yaml_cannot_read_is_one_line(value: str) -> None:
    with raises(SpecError, *VALUES[value]) as raised:
        load_yaml(f"name: a\nn: [1, {value}]\n", "dataset.yaml")
    assert str(raised.value).startswith("dataset.yaml:2: ")
    assert len(str(raised.value)) < 300


TAGS = {
    "name: !!python/object/apply:os.system ['touch owned']": (1, "!!python/object/apply:os.system"),
    "a: 1\nname: !!python/name:os.system": (2, "!!python/name:os.system"),
    "a:\n  - !!python/object:os.x {}": (2, "!!python/object:os.x"),
    "a: 1\nb: !include secret.yaml": (2, "!include"),
    "!!python/module:os": (1, "!!python/module:os"),
    "%TAG ! tag:x,1:\n---\na: !y 1": (3, "tag:x,1:y"),
    "? !!python/name:os.system x\n: 1": (1, "!!python/name:os.system"),
}


@pytest.mark.parametrize("text", TAGS)
def test_a_tag_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line, tag = TAGS[text]
    with raises(SpecError, f"dataset.yaml:{line}: ", f"tag `{tag}`"):
        load_yaml(text, "dataset.yaml")
    assert list(tmp_path.iterdir()) == []


def bomb(first: str, other: str) -> str:
    """Nine lines that stand for a billion values: by `other`, each names ten of the one before."""
    names = "abcdefghi"
    lines = [f"a: &a {first}", *(f"{b}: &{b} {other % ','.join([f'*{a}'] * 10)}" for a, b in pairwise(names))]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [bomb("[1, 1]", "[%s]"), bomb("{x: 1}", "{<<: [%s]}"), bomb("{x: 1}", "{y: [%s]}")])
def test_aliases_do_not_multiply_without_end(text: str) -> None:
    with pytest.raises(SpecError, match=r"^dataset.yaml:[56]: aliases make [\d,]{7} values"):
        load_yaml(text, "dataset.yaml")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: " + "[" * 2000])
def test_values_without_end_are_refused(text: str) -> None:
    with raises(SpecError, "dataset.yaml", "nested too deep", "alias"):
        load_yaml(text, "dataset.yaml")


def test_aliases_as_people_write_them() -> None:
    text = f"words: &w {list(range(5_000))}\na: {{w: *w}}\nb: &b {{x: 1}}\nc: {{<<: *b, y: 2}}"
    assert load_yaml(text, "dataset.yaml").value["c"] == {"x": 1, "y": 2}


@pytest.fixture
def spec_folder(tmp_path: Path) -> Iterator[Path]:
    """A spec's folder with a module; undoes a test's imports."""
    modules, finders = dict(sys.modules), list(sys.meta_path)
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec/mine.py").write_text("import strange\ndef rows(): ...\n")
    yield tmp_path / "spec"
    for name in set(sys.modules) - set(modules):
        if name in ("mine", "strange"):
            del sys.modules[name]
    sys.meta_path[:] = finders
    user_code._Finder.code = None


@pytest.mark.parametrize("how", ["current folder", "PYTHONPATH"])
def test_a_module_of_anywhere_is_refused(
    spec_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    (tmp_path / "strange.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("" if how == "current folder" else str(tmp_path))
    with raises(UserCodeError, "`strange:rows`", tmp_path / "strange.py", "beside", "install it"):
        UserCode.of(["strange:rows"], str(spec_folder))
    with raises(UserCodeError, "`mine:rows`", tmp_path / "strange.py"):  # which the spec's own module imports
        UserCode.of(["mine:rows"], str(spec_folder))
    with raises(UserCodeError, "`strange:rows`", tmp_path / "strange.py"):  # as on a worker
        load("strange:rows")


def site_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the folder of installed packages."""
    folder.mkdir()
    monkeypatch.setattr(user_code.site, "getsitepackages", lambda: [str(folder)])


def test_a_module_does_not_stand_in_for_an_installed_one(
    spec_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site_packages(tmp_path / "site", monkeypatch)
    for folder in ("site", "."):
        (tmp_path / folder / "strange.py").write_text("def rows(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert list(UserCode.of(["strange:rows", "mine:rows"], str(spec_folder)).files) == ["mine.py"]
    assert load("strange:rows").__module__ == "strange"
    del sys.modules["strange"]
    monkeypatch.syspath_prepend(str(tmp_path))
    with raises(UserCodeError, "`strange:rows`", tmp_path / "strange.py"):
        load("strange:rows")


def test_a_package_that_is_edited_where_it_lies_is_installed(
    spec_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site_packages(tmp_path / "site", monkeypatch)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/strange.py").write_text("def rows(): ...\n")
    (tmp_path / "site/strange.pth").write_text(f"# edited\nimport os\n{tmp_path / 'project'}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    assert load("strange:rows").__module__ == "strange"
    assert user_code.is_installed("recordmill.pipeline.build.make_version")


def test_what_the_manifest_says_of_code(spec_folder: Path) -> None:
    (spec_folder / "strange.py").write_text("X = 1\n")
    told = UserCode.of(["mine:rows"], str(spec_folder)).to_json()
    assert re.fullmatch("[0-9a-f]{64}", told["sha256"])
    assert told["files"]["strange.py"] == hashlib.sha256(b"X = 1\n").hexdigest()
    (spec_folder / "strange.py").write_text("X = 2\n")
    assert UserCode.of(["mine:rows"], str(spec_folder)).to_json()["sha256"] != told["sha256"]


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def test_every_locked_package_has_hashes() -> None:
    found = [ROOT / name for name in _tracked() if name.endswith(".lock") and "maven" not in name]
    assert ROOT / "requirements.lock" in found
    for file in found:
        text = file.read_text()
        entries = [
            line for line in text.replace("\\\n", " ").splitlines() if line and not line.lstrip().startswith("#")
        ]
        assert entries
        for entry in entries:
            assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+", entry), f"{file}: {entry:.80} is not pinned: make lock"
            assert re.search(r" --hash=sha256:[0-9a-f]{64}", entry), f"{file}: {entry:.80} has no hash: make lock"


def test_no_registry_is_named() -> None:
    """The installing user chooses the registry, by pip's configuration."""
    hosts = re.compile(
        "|".join(["py" + r"pi\.", "python" + "hosted", "--(extra-)?index" + r"-url\b", "find" + "-links"])
    )
    for name in _tracked():
        path = ROOT / name
        if path.is_file() and path.suffix not in (".jpg", ".png", ".parquet"):
            found = hosts.search(path.read_text(errors="replace").replace("--no-emit-index-url", ""))
            assert found is None, f"{name} names {found and found[0]}"
