"""A newer TensorFlow and newer Pythons read what was built; the table of docs/install.md, made here, says what runs.

`python -m tests.test_install` writes the table. `RECORDMILL_TENSORFLOW` names the Python of an environment with
`.ci/tensorflow.lock` (`make smoke`); newer Pythons are those of Debian's unstable branch (`make test-container`).
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import bare_root
from tests.in_reader import read
from tests.test_examples import LEARNED, build_example
from tests.test_packaging import PROJECT, ROOT

PAGE = ROOT / "docs/install.md"
TABLE = re.compile(r"(?<=## Python versions\n\n)(\|.*\n)+")
TESTED = re.findall(r"3\.\d+", (ROOT / ".ci/pythons").read_text().partition("for version in")[2].partition(";")[0])
PINS = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
NEWER = re.findall(r"^tensorflow==(\S+)", (ROOT / ".ci/tensorflow.lock").read_text(), re.MULTILINE)[0]
LACKING: dict[str, dict[str, list[str]]] = {
    "3.14": {"tf": ["h5py<3.15"], "build": ["tensorflow<2.22", "tfx-bsl"]},
    "3.15": {"fast": ["simplejpeg"], "tf": ["tensorflow"], "build": ["tensorflow", "tfx-bsl"]},
}
"""Requirements of an extra, or of its requirements, that have no wheel for a newer Python."""
RUN = {"3.14": ["cli", "fast"], "3.15": ["cli"]}
"""The extras that `test_newer_pythons_read` installs."""
EXTRAS = ["", "cli", "report", "heif", "deep", "masks", "tokens", "aws", "gcp", "fast", "tf", "build"]
TENSORFLOW = {
    "tf": f"{PINS['tensorflow']}, {NEWER}; Keras 3",
    "build": f"{PINS['tensorflow']}, tf.Transform {PINS['tensorflow-transform']}, Beam {PINS['apache-beam']}",
}


def cells(extra: str) -> tuple[str, ...]:
    """Describes an extra: on the tested Pythons, on each newer one, and its TensorFlow."""
    newer = []
    for python, lacking in LACKING.items():
        missing = ", ".join(lacking.get(extra, ()))
        runs = "tested" if extra in ["", *RUN[python]] else "wheels; not run"
        newer.append(f"no wheel of {missing}" if missing else runs)
    return "tested; the same bytes on each" if extra == "build" else "tested", *newer, TENSORFLOW.get(extra, "none")


def table() -> str:
    """The table: a row for neighbours whose cells are equal."""
    *first, last = sorted(TESTED, key=lambda version: int(version[2:]))
    lines = ["| | CPython " + " | ".join([f"{', '.join(first)} and {last}", *LACKING, "TensorFlow"]) + " |"]
    lines.append("|---" * (3 + len(LACKING)) + "|")
    for found, extras in groupby(EXTRAS, cells):
        names = ", ".join(f"`{extra}`" if extra else "reading" for extra in extras)
        lines.append(f"| {names} | {' | '.join(found)} |")
    return "\n".join(lines) + "\n"


def test_the_page_has_the_table_of_what_runs() -> None:
    assert TABLE.search(PAGE.read_text())[0] == table(), "python -m tests.test_install"
    assert PROJECT["requires-python"] == f">={TESTED[-1]},<3.{int([*LACKING][-1][2:]) + 1}"
    assert {*EXTRAS, "s3", "dev"} == {"", *PROJECT["optional-dependencies"]}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs that earlier TensorFlows built."""
    folder = tmp_path_factory.mktemp("golden")
    for name in ("golden_format_1", "golden_packed_rows"):
        with tarfile.open(ROOT / f"tests/{name}.tar.xz") as archive:
            archive.extractall(folder / name)
    return folder


@pytest.fixture
def newer() -> str:
    named = os.environ.get("RECORDMILL_TENSORFLOW")
    if not named:
        pytest.skip("RECORDMILL_TENSORFLOW names no Python with a newer TensorFlow: make smoke")
    return named


def run(python: str, *arguments: str) -> str:
    """Runs a program from the root of the clone; returns what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([python, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_newer_tensorflow_reads_the_same_batches(newer: str, golden: Path) -> None:
    outputs = sorted(map(str, golden.iterdir()))
    found = json.loads(run(newer, "-m", "tests.in_reader", *outputs).splitlines()[-1])
    assert found["tensorflow"] == NEWER
    assert found["batches"] == [read(output) for output in outputs]  # by the TensorFlow that builds


def test_a_model_learns_with_a_newer_tensorflow(newer: str, tmp_path: Path) -> None:
    rows, (lowest, highest) = LEARNED["text_classification"]
    example, output = build_example("text_classification", rows, tmp_path)
    printed = run(newer, str(example / "train.py"), str(output))
    assert lowest <= float(re.findall(r"test split[^:]*: ([0-9.]+)", printed)[0]) <= highest, printed


@pytest.fixture(scope="module")
def unstable(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> bare_root.Stage:
    """A bare root with newer Pythons, a clone and the golden outputs."""
    root = tmp_path_factory.mktemp("unstable") / "root"
    packages = ",".join(["ca-certificates", *(f"python{version}-venv" for version in LACKING)])
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={packages}", "sid", str(root)], check=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root / "clone")], check=True)
    shutil.copytree(golden, root / "golden")
    return bare_root.Stage(str(root), {"PATH": bare_root.SEARCH_PATH}, "/clone")


@pytest.mark.container
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", LACKING)
def test_newer_pythons_read(version: str, unstable: bare_root.Stage, golden: Path) -> None:
    wheels = ",".join(extra for extra in EXTRAS[1:] if extra not in LACKING[version])
    missing = " ".join(f"'{each}'" for lines in LACKING[version].values() for each in lines)
    script = f"""
        python{version} -m venv /{version}
        install="/{version}/bin/pip install --quiet --only-binary :all:"
        $install '.[{",".join(RUN[version])}]'
        cd /golden
        for output in *; do /{version}/bin/recordmill show $output; done
        PYTHONPATH=/clone /{version}/bin/python -m tests.in_reader * > /{version}/found.json
        $install --dry-run '/clone[{wheels}]'
        for each in {missing}; do if $install --dry-run --no-deps "$each"; then exit 3; fi; done
    """
    bare_root.run(unstable, SimpleNamespace(value=[f"set -e; {script}"]), {})
    found = json.loads(unstable.path(f"/{version}/found.json").read_text())
    assert found["python"].startswith(f"{version}.")
    assert found["batches"] == [{"as_numpy": read(str(output))["as_numpy"]} for output in sorted(golden.iterdir())]


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(table(), PAGE.read_text()))
