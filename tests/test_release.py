"""A release: the same bytes from every clone, a page that a package index can show, a wheel that works on its own."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from datetime import date
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from recordmill.pipeline import VERSION
from tests import published
from tests.messages import assert_names
from tests.test_import_tiers import sources
from tests.test_packaging import PROJECT, required

ROOT = Path(__file__).parents[1]
HOME = PROJECT["urls"]["Homepage"]
TOOLS = os.environ.get("RECORDMILL_RELEASE_TOOLS")
"""A Python with the packages of .ci/release.lock: `make release` makes bench-data/release/bin/python."""
LINKS = re.compile(r"\]\(([^)\s]+)\)")


def git(folder: Path, *arguments: str) -> str:
    who = {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b"}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env=os.environ | who, capture_output=True, text=True, check=True).stdout


def clone(source: Path, folder: Path) -> Path:
    git(source, "clone", "--quiet", "--no-hardlinks", str(source), str(folder))
    return folder


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit: this checkout's present files."""
    folder = tmp_path_factory.mktemp("repository") / "first"
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "--", *COPIED).splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "A release")
    return folder


COPIED = [".ci", "*.toml", "*.py", "*.in", "*.css", "*.j2", "*.typed", "README.md", "LICENSE", "recordmill"]


def archive(clone: Path, umask: int = 0o022) -> dict[str, Path]:
    """Builds the archives of a clone; returns them by name."""
    dist = clone / "dist"
    command = [sys.executable, str(clone / ".ci/archives"), str(dist)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, umask=umask)
    assert done.returncode == 0, done.stdout + done.stderr
    return {file.name: file for file in dist.iterdir()}


@pytest.fixture(scope="module")
def archives(repository: Path) -> tuple[Path, Path]:
    """A source distribution, and the wheel built from it."""
    files = archive(repository)
    assert sorted(files) == [f"recordmill-{VERSION}-py3-none-any.whl", f"recordmill-{VERSION}.tar.gz"]
    wheel, sdist = (files[name] for name in sorted(files))
    return sdist, wheel


@pytest.mark.slow
def test_two_clones_give_the_same_bytes(repository: Path, archives: tuple[Path, Path], tmp_path: Path) -> None:
    second = clone(repository, tmp_path / "elsewhere")
    for file in second.rglob("*.py"):
        os.utime(file, (0, 1_000_000_000))
    files = archive(second, umask=0o077)
    there = {file.name: file.read_bytes() for file in archives}
    assert {name: file.read_bytes() for name, file in files.items()} == there


def test_a_changed_checkout_is_no_release(repository: Path, tmp_path: Path) -> None:
    changed = clone(repository, tmp_path / "changed")
    with (changed / "README.md").open("a") as file:
        file.write("more")
    command = [sys.executable, str(changed / ".ci/archives"), str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert_names(done.stderr, "README.md", "commit")
    assert not (tmp_path / "dist").exists()


@pytest.mark.slow
def test_the_page_of_the_index_has_no_relative_link(archives: tuple[Path, Path]) -> None:
    text = zipfile.ZipFile(archives[1]).read(f"recordmill-{VERSION}.dist-info/METADATA").decode()
    page = text.partition("\n\n")[2]
    links, inside = LINKS.findall(page), LINKS.findall((ROOT / "README.md").read_text())
    assert len(links) == len(inside) > 40
    for link, path in zip(links, inside, strict=True):
        folder = "raw" if path.endswith(".webp") else "blob"
        assert link == f"{HOME}/{folder}/v{VERSION}/{path}"
        assert (ROOT / path).is_file()


@pytest.mark.skipif(TOOLS is None, reason="needs twine: RECORDMILL_RELEASE_TOOLS")
@pytest.mark.slow
def test_an_index_accepts_the_archives(archives: tuple[Path, Path]) -> None:
    command = [str(TOOLS), "-m", "twine", "check", "--strict", *map(str, archives)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_has_one_package(archives: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(archives[1]).namelist()
    assert {name.partition("/")[0] for name in names} == {"recordmill", f"recordmill-{VERSION}.dist-info"}
    modules = {name.removesuffix(".py").removesuffix("/__init__") for name in names if name.endswith(".py")}
    assert {module.replace("/", ".") for module in modules} == set(sources())
    assert "recordmill/py.typed" in names


@pytest.mark.slow
def test_the_source_distribution_has_what_builds_a_wheel(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
        assert not [member.name for member in archive if member.issym()]  # files, where the checkout has links
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py", "recordmill/pipeline/__init__.py"} <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "examples", "pipeline/"))]


TRAIN = """
import sys
import pipeline, transforms
import recordmill

def main():
    train = recordmill.open_dataset(sys.argv[1]).training_input("train", batch_size=8, features=["price"], workers=1)
    for features, label in train.as_numpy():
        print(recordmill.__file__, pipeline.MINE, transforms.MINE, label.shape)
        break

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_a_script_may_lie_beside_modules_named_as_our_folders(archives: tuple[Path, Path], tmp_path: Path) -> None:
    zipfile.ZipFile(archives[1]).extractall(tmp_path / "installed")
    published.write_version(tmp_path / "dataset")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    for name in ("pipeline", "transforms"):
        (project / f"{name}.py").write_text("MINE = __name__")
    done = subprocess.run(
        [sys.executable, project / "train.py", tmp_path / "dataset"], cwd=project, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")}, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    installed = str(tmp_path / "installed/recordmill/__init__.py")
    assert done.stdout.split(maxsplit=1) == [installed, "pipeline transforms (8,)\n"]


READ = """
import sys, recordmill
batches = recordmill.open_dataset(sys.argv[1]).training_input("train", batch_size=8, features=["price"]).as_numpy()
print(len(next(iter(batches))[1]))
"""


@pytest.mark.slow
def test_a_bare_environment_reads_and_names_the_extras_of_commands(archives: tuple[Path, Path], tmp_path: Path) -> None:
    published.write_version(tmp_path / "dataset")
    venv.create(tmp_path / "bare", with_pip=True)
    binaries = tmp_path / "bare/bin"
    install = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(archives[1])]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    (packages,) = (tmp_path / "bare/lib").glob("python3*/site-packages")
    for file in {file.parts[0] for name in required() for file in metadata.files(name) or () if file.parts[0] != ".."}:
        (packages / file).symlink_to(metadata.distribution("numpy").locate_file(file))

    def run(*command: str) -> tuple[int, str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        words = [str(binaries / command[0]), *command[1:]]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    assert run("recordmill", "--version") == (0, f"recordmill {VERSION}\n")
    assert run("python", "-c", READ, "dataset") == (0, "8\n")
    for command in ("build", "show"):
        status, text = run("recordmill", command, "dataset")
        assert status == 2
        assert_names(text, 'pip install "recordmill[cli]"', '"recordmill[build]"', "rich", "typer")


@pytest.mark.skipif(TOOLS is None, reason="needs cyclonedx-bom: RECORDMILL_RELEASE_TOOLS")
@pytest.mark.slow
def test_two_clones_give_the_same_sbom(tmp_path: Path) -> None:
    texts = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        shutil.copy(ROOT / "requirements.lock", folder)
        command = [str(TOOLS), "-m", "cyclonedx_py", "requirements", "requirements.lock", "--output-reproducible"]
        texts.append(subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=120).stdout)
    assert texts[0] == texts[1]
    names = {component["name"] for component in json.loads(texts[0])["components"]}
    assert {"apache-beam", "numpy", "tensorflow"} <= names


@pytest.mark.skipif(TOOLS is None, reason="needs check-jsonschema: RECORDMILL_RELEASE_TOOLS")
@pytest.mark.parametrize("schema", ["github-workflows", "citation-file-format"])
def test_the_workflows_and_the_citation_are_of_their_schemas(schema: str) -> None:
    files = [*(ROOT / ".github/workflows").iterdir()] if schema == "github-workflows" else [ROOT / "CITATION.cff"]
    assert files
    command = [str(TOOLS), "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {".venv/.ready"}
    for file in (ROOT / ".github/workflows").iterdir():
        jobs = yaml.safe_load(file.read_text())["jobs"].values()
        commands = [step["run"] for job in jobs for step in job["steps"] if step.get("run", "").startswith("make ")]
        named = {command.split()[-1] for command in commands if not command.endswith("}}")}
        named |= {target for job in jobs for target in job.get("strategy", {}).get("matrix", {}).get("target", ())}
        assert named
        assert named <= targets


def test_the_version_and_its_date_are_the_same_everywhere() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[0] == "[Unreleased]"
    assert f"{HOME}/releases/tag/v{VERSION}" in text
    released = re.findall(r"^## \[([\d.]+)\] - (\S+)$", text, re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert released[0] == (citation["version"], citation["date-released"].isoformat())
    assert citation["version"] == VERSION
    assert date.fromisoformat(released[0][1])
    assert citation["repository-code"] == HOME
