"""What is installed for what: `setup.py`, the imports, the lock file, docs/install.md and the bare command agree."""

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, TypeGuard

import pytest
import setuptools
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recordmill.__main__ import NEEDED
from recordmill.pipeline.version import VERSION

ROOT = Path(__file__).parents[1]
EXTRAS = {"fast", "tf", "build", "gcp", "aws", "s3", "dev"}
LOADED_BY_OTHERS = {"boto3", "gcsfs", "s3fs"}  # by Beam and fsspec, for URLs of their kind
ONLY_SOME_SPECS = {"sentencepiece", "tensorflow-text"}
WITH_OTHERS = {
    "keras",
    "protobuf",
    "tensorflow-metadata",
    "tfx-bsl",
}  # where TensorFlow and tf.Transform are, these are


@cache
def packaging() -> dict[str, Any]:
    """What `setup.py` gives to setuptools."""
    given: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(setuptools, "setup", given.update)
        runpy.run_path("setup.py")
    return given


def required(*extras: str) -> set[str]:
    """The distributions of the base, and of extras, by their canonical names."""
    lists = [packaging()["install_requires"], *(packaging()["extras_require"][extra] for extra in extras)]
    return {canonicalize_name(Requirement(line).name) for lines in lists for line in lines}


installed = cache(packages_distributions)


def distributions(package: str) -> set[str]:
    """The distributions that a top-level package is of: `PIL` of pillow, `google` of many."""
    return {canonicalize_name(name) for name in installed().get(package, ())}


def sources() -> dict[str, Path]:
    """The modules of the two packages by name."""
    files = [file for package in ("pipeline", "transforms") for file in (ROOT / package).rglob("*.py")]
    own = {f"recordmill.{file.relative_to(ROOT).with_suffix('').as_posix()}".replace("/", "."): file for file in files}
    own |= {f"recordmill.{file.stem}": file for file in (ROOT / "recordmill").glob("*.py")}
    return {name.removesuffix(".__init__"): file for name, file in own.items()}


def statements(file: Path) -> Iterator[ast.AST]:
    """A module's nodes, without those that are there for type checkers alone."""
    for node in ast.parse(file.read_bytes()).body:
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from ast.walk(node)


@cache
def imports(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The modules that a file imports, and those that it does without or loads by name when they are wanted."""
    nodes = list(statements(file))
    tried = [line for node in nodes if is_tried(node) for line in node.body]
    found = frozenset(name for node in nodes for name in imported(node))
    optional = {name for line in tried for name in imported(line)}
    named = {
        word.value
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
        for word in node.args
        if isinstance(word, ast.Constant)
    }
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
    """The top-level packages that modules import, and all that these import in turn; and those loaded by name."""
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
    return packages - sys.stdlib_module_names - {"recordmill", ""}


def unprovided(packages: Iterable[str], given: set[str]) -> list[str]:
    return sorted(package for package in packages if not distributions(package) & given)


def is_tensorflow(module: str) -> bool:
    """Whether it is of the half of the reader that is for TensorFlow, as its name says."""
    return any(word in module for word in ("tf_", "tensorflow", "keras"))


READER = [
    name
    for name in sources()
    if name.startswith(("recordmill.pipeline.reader", "recordmill.transforms.contract.augment"))
]


def test_the_base_is_three_packages() -> None:
    assert required() == {"google-crc32c", "numpy", "pillow"}
    assert set(packaging()["extras_require"]) == EXTRAS
    assert packaging()["version"] == VERSION


@pytest.mark.parametrize("module", [name for name in READER if not is_tensorflow(name)])
def test_the_reader_imports_the_base_alone(module: str) -> None:
    needed, named = needs(module)
    assert unprovided(needed, required()) == []
    assert unprovided(named, required("fast", "aws", "gcp", "tf")) == []


def test_the_tensorflow_engine_needs_the_extra_tf() -> None:
    needed, _ = needs(*filter(is_tensorflow, READER))
    assert unprovided(needed, required("tf")) == []
    assert "tensorflow" in needed


def test_every_import_is_of_a_requirement() -> None:
    needed, named = needs(*sources())
    assert unprovided(needed, required("build")) == []
    assert unprovided(named, required("build", "fast", "aws", "gcp")) == []


def test_every_requirement_is_imported() -> None:
    used = {name for file in sources().values() for modules in imports(file) for name in third_party(modules)}
    provided = set().union(*map(distributions, used))
    assert required("build", "fast", "aws", "gcp") - provided == LOADED_BY_OTHERS


def test_dev_is_all_that_users_install() -> None:
    assert required("dev") > required("build", "fast", "aws", "gcp", "tf")
    assert required("s3") == required("aws")


def test_the_lock_file_holds_every_requirement() -> None:
    locked = dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    for line in [*packaging()["install_requires"], *packaging()["extras_require"]["dev"]]:
        requirement = Requirement(line)
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"requirements.lock has no {requirement.name}: make lock"
        assert requirement.specifier.contains(version), f"requirements.lock has {requirement.name} {version}: make lock"


def test_the_lock_file_names_no_registry() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_the_page_has_a_row_for_each_extra() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert set(re.findall(r"^\| `recordmill\[(\w+)\]`", page, re.MULTILINE)) == EXTRAS - {"s3"}


def test_the_command_checks_for_what_every_build_needs() -> None:
    checked = set().union(*map(distributions, NEEDED))
    assert required("build") - required() - checked == ONLY_SOME_SPECS | WITH_OTHERS


@pytest.mark.parametrize("arguments", [[], ["--help"], ["build", "dataset.yaml"]])
def test_the_command_without_its_packages_is_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-S", "-m", "recordmill", *arguments]  # without site-packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    line = f'needs the packages of a build: pip install "recordmill[build]" (missing: {", ".join(NEEDED)})'
    assert done.stderr == f"recordmill: the command {line}\n"


def test_the_installed_command_is_the_one_that_checks() -> None:
    assert packaging()["entry_points"] == {"console_scripts": ["recordmill = recordmill.__main__:main"]}
