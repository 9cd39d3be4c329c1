"""`pyproject.toml`, the imports, the locks, docs/install.md and the bare command agree on what each extra installs."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import recordmill
import recordmill.keras
from recordmill.pipeline.cli.extras import BUILD, CLI
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.transforms.images.image_header import FORMATS
from tests import published
from tests.messages import assert_names, raises
from tests.test_import_tiers import sources

ROOT = Path(__file__).parents[1]
EXTRAS = {"cli", "report", "fast", "heif", "deep", "masks", "tf", "build", "gcp", "aws", "s3", "tokens", "dev"}
LOADED_BY_OTHERS = {"boto3"}  # by the store and by Beam, for s3://
ONLY_SOME_SPECS = {"sentencepiece", "simplejpeg", "tensorflow-text"}
WITH_OTHERS = {"grpcio", "requests", "keras", "markupsafe", "protobuf", "tensorflow-metadata", "tfx-bsl"}
"""Packages that TensorFlow, tf.Transform and Jinja bring along."""
FRAMEWORKS = {"jax", "torch"}
"""Users' frameworks: imported by the adapters named after them, and part of no extra."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def required(*extras: str) -> set[str]:
    """The distributions of the base and of extras, by canonical name; extras may name other extras."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    requirements = [Requirement(line) for line in lines]
    names = {canonicalize_name(one.name) for one in requirements if one.name != "recordmill"}
    inner = [extra for one in requirements if one.name == "recordmill" for extra in one.extras]
    return names | required(*inner) if inner else names


installed = cache(metadata.packages_distributions)


def distributions(package: str) -> set[str]:
    """The distributions of a top-level package: `PIL` of pillow, `google` of many."""
    return {canonicalize_name(name) for name in installed().get(package, ())}


@cache
def everything_imported() -> set[str]:
    """The top-level packages that any module of ours imports."""
    return {name for file in sources().values() for modules in imports(file) for name in third_party(modules)}


def statements(file: Path) -> Iterator[ast.AST]:
    """A module's nodes, without those for type checkers."""
    for node in ast.parse(file.read_bytes()).body:
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from ast.walk(node)


@cache
def imports(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The modules that a file needs, and those that it loads only if installed or used."""
    nodes = list(statements(file))
    tried = [line for node in nodes if is_tried(node) for line in node.body]
    found = frozenset(name for node in nodes for name in imported(node))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    inner = {name for function in functions for node in ast.walk(function) for name in imported(node)}
    optional = {name for line in tried for name in imported(line)} | {
        name for name in inner if name.startswith("recordmill.")
    }
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    words = [word for call in calls if ast.unparse(call.func).endswith("import_module") for word in call.args]
    named = {word.value for word in words if isinstance(word, ast.Constant)}
    return found - optional, frozenset(optional | named)


def is_tried(node: ast.AST) -> TypeGuard[ast.Try]:
    return isinstance(node, ast.Try) and "except ImportError" in ast.unparse(node)


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return set()


def needs(*modules: str) -> tuple[set[str], set[str]]:
    """The top-level packages that modules import, also indirectly; and those loaded by name."""
    known, seen, needed, named = sources(), set[str](), set[str](), set[str]()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in known and module not in seen:
            seen.add(module)
            found, by_name = imports(known[module])
            waiting += [*found, module.rpartition(".")[0]]
            needed |= third_party(found)
            named |= third_party(by_name)
    return needed, named


def third_party(modules: Iterable[str]) -> set[str]:
    packages = {module.partition(".")[0] for module in modules}
    return packages - sys.stdlib_module_names - FRAMEWORKS - {"recordmill", ""}


def unprovided(packages: Iterable[str], given: set[str]) -> list[str]:
    return sorted(package for package in packages if not distributions(package) & given)


def is_tensorflow(module: str) -> bool:
    """Whether a module of the reader needs TensorFlow, by its name."""
    return any(word in module for word in ("tf_", "tensorflow", "keras"))


ROOMS = ("recordmill.dataset", "recordmill.pipeline.reader", "recordmill.transforms.images.augment.__init__")
READER = [name for name in sources() if name.startswith(ROOMS)]


def test_the_base_is_three_packages_and_dev_all_that_users_install() -> None:
    assert required() == {"google-crc32c", "numpy", "pillow"}
    assert set(PROJECT["optional-dependencies"]) == EXTRAS
    assert required("dev") > required("build", "fast", "heif", "aws", "gcp", "tf")
    assert required("s3") == required("aws")


@pytest.mark.parametrize("module", [name for name in READER if not is_tensorflow(name)])
def test_the_reader_imports_the_base_alone(module: str) -> None:
    needed, named = needs(module)
    assert unprovided(needed, required()) == []
    assert unprovided(named, required("fast", "aws", "gcp", "tf")) == []


def test_the_tensorflow_engine_needs_the_extra_tf() -> None:
    needed, _ = needs(*filter(is_tensorflow, READER))
    assert unprovided(needed, required("tf") | ONLY_SOME_SPECS) == []
    assert "tensorflow" in needed


def test_every_import_is_of_a_requirement() -> None:
    needed, named = needs(*sources())
    assert unprovided(needed, required("build")) == []
    assert unprovided(named, required("build", "deep", "fast", "masks", "aws", "gcp", "tokens")) == []


def test_every_requirement_is_imported() -> None:
    provided = set().union(*map(distributions, everything_imported()))
    assert required("build", "deep", "fast", "aws", "gcp") - provided == LOADED_BY_OTHERS


def test_the_plugins_of_formats_are_in_their_extras() -> None:
    plugins = [form for form in FORMATS if form.plugin]
    assert plugins
    for form in plugins:
        assert unprovided([form.plugin.partition(".")[0]], required(form.extra)) == []


def test_the_lock_file_holds_every_requirement() -> None:
    locked = dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    lines = [Requirement(line) for line in [*PROJECT["dependencies"], *extras]]
    for requirement in (line for line in lines if line.name != "recordmill"):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"requirements.lock lacks {requirement.name}: make lock"
        assert requirement.specifier.contains(version), f"requirements.lock has {requirement.name} {version}: make lock"


def test_python_versions_are_the_same_everywhere_and_the_page_has_a_row_for_each_extra() -> None:
    classified = re.findall(r"Python :: (3\.\d+)", str(PROJECT["classifiers"]))
    assert classified == ["3.11", "3.12", "3.13"]
    assert " ".join(reversed(classified)) in (ROOT / ".ci/pythons").read_text()
    page = (ROOT / "docs/install.md").read_text()
    assert "CPython 3.11, 3.12 and 3.13" in page
    assert set(re.findall(r"^\| `recordmill\[(\w+)\]`", page, re.MULTILINE)) == EXTRAS - {"s3"}


@pytest.mark.parametrize("module", [recordmill, recordmill.keras])
def test_every_public_name_loads(module: ModuleType) -> None:
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []


def test_type_checkers_see_the_names_that_load() -> None:
    body = ast.parse(Path(recordmill.__file__).read_text()).body
    guarded = next(node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    declared = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted([*declared, "__version__"]) == recordmill.__all__ == dir(recordmill)
    loaded = {name: f"recordmill.{module}" for module, names in recordmill.MODULES.items() for name in names}
    assert loaded == declared
    with raises(AttributeError, "'recordmill'", "'open_datset'"):
        _ = recordmill.open_datset


def test_importing_the_package_imports_the_standard_library_alone() -> None:
    code = "import sys; before = set(sys.modules); import recordmill; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("recordmill")} == {"recordmill", "recordmill.pipeline"}
    assert third_party(loaded) == set()


def test_the_command_checks_for_what_its_extras_bring() -> None:
    checked = set().union(*map(distributions, BUILD))
    assert set().union(*map(distributions, CLI)) == required("cli") - required()
    assert required("build") - required("cli") - checked == ONLY_SOME_SPECS | WITH_OTHERS


@pytest.mark.parametrize("arguments", [[], ["--help"], ["build", "dataset.yaml"]])
def test_the_command_without_its_packages_is_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-S", "-m", "recordmill", *arguments]  # without site-packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert_names(line, 'pip install "recordmill[cli]"', '"recordmill[build]"', "missing: rich, typer")


def test_the_installed_commands_are_the_one_that_checks_and_the_worker() -> None:
    worker = "recordmill.pipeline.build.beam.worker_boot:main"
    assert PROJECT["scripts"] == {"recordmill": "recordmill.__main__:main", "recordmill-worker": worker}


# Runs commands one after another where only some distributions are installed, as it seems; prints how each ended.
WITH_FEW_PACKAGES = """
import contextlib, io, sys

def status(arguments):
    sys.argv = ["recordmill", *arguments.split()]
    try:
        main()
    except SystemExit as end:
        return end.code or 0

sys.modules |= dict.fromkeys(sys.argv[1].split())  # None: not installed
commands = sys.argv[2:]
from recordmill.__main__ import main
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = status(command)
    print(code, command, "|", *(out.getvalue() + err.getvalue()).split())
"""


@cache
def absent(extra: str) -> list[str]:
    """The top-level packages that our modules import and that the base and an extra do not install, even indirectly."""
    there, waiting = set[str](), required(extra)
    while waiting:
        there |= waiting
        lines = [Requirement(line) for name in waiting for line in metadata.requires(name) or ()]
        waiting = {canonicalize_name(line.name) for line in lines if not line.marker or line.marker.evaluate()} - there
    return sorted(name for name in everything_imported() if not distributions(name) & there)


def run_with(extra: str, *commands: str, cwd: Path) -> list[str]:
    """Runs commands in one process that finds the packages of the base and an extra alone; gives a line for each."""
    command = [sys.executable, "-c", WITH_FEW_PACKAGES, " ".join(absent(extra)), *commands]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "300"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_datasets_are_looked_after_without_the_packages_of_a_build(tmp_path: Path) -> None:
    second = published.write_version(tmp_path, sequence=2)
    first = second.with_name("20261119T120000Z-00000000")
    shutil.copytree(second, first)
    published.write_manifest(first, replace(read_manifest(first), version=first.name, sequence=1))
    lines = run_with(
        "cli", "show .", "versions list .", "diff . 1 2", "versions pin . 1", "versions unpin . 1",
        "verify .", "verify . --json --quick", "versions rollback .",
        "versions list .", "versions rollback . 2", "versions prune . --keep 1 --grace 0", cwd=tmp_path,
    )  # fmt: skip
    assert [line.partition(" |")[0] for line in lines if not line.startswith("0 ")] == []
    assert "read = " in lines[0]
    assert f"2 {second.name} live" in lines[1]
    assert f"1 {first.name} live" in lines[8]
    assert not first.exists()


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "command", ["init .", "build x.yaml -o out", "build x.yaml -o out --again", "schema", "verify . --spec x.yaml"]
)
def test_what_a_build_needs_is_one_line(command: str, tmp_path: Path) -> None:
    published.write_version(tmp_path)
    missing = ", ".join(name for name in BUILD if name in absent("cli"))
    assert missing.startswith("apache_beam, jinja2, psutil")
    (line,) = run_with("cli", command, cwd=tmp_path)
    assert line.startswith(f"2 {command} | recordmill: ")
    assert_names(line, 'pip install "recordmill[build]"', f"missing: {missing}")


def test_a_report_needs_its_extra(tmp_path: Path) -> None:
    published.write_version(tmp_path)
    (line,) = run_with("cli", "report .", cwd=tmp_path)
    assert line.startswith("2 report . | recordmill: ")
    assert_names(line, 'pip install "recordmill[report]"', "missing: jinja2, pyarrow")
    [written] = run_with("report", "report . -o page.html", cwd=tmp_path)
    assert written.startswith("0 report . -o page.html | page.html: small ")


def test_a_name_that_needs_an_extra_says_which() -> None:
    blocked = "import sys; sys.modules['pydantic'] = sys.modules['tensorflow'] = None; import recordmill; "
    for code, name in (("recordmill.build", "build"), ("from recordmill import load_spec", "load_spec")):
        done = subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, cwd=ROOT)
        last = done.stderr.splitlines()[-1]
        assert_names(last, "ModuleNotFoundError", name, "pydantic", 'pip install "recordmill[build]"')
