"""What a module loads: standard library, then TensorFlow, then tf.Transform, then Apache Beam; never a heavier tier."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import hand_made

ROOT = Path(__file__).parents[1]


def sources() -> dict[str, Path]:
    """The modules of the packages by name."""
    files = [file for package in ("pipeline", "transforms") for file in (ROOT / package).rglob("*.py")]
    own = {"recordmill." + ".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
    own |= {f"recordmill.{file.stem}": file for file in (ROOT / "recordmill").glob("*.py")}
    return {name.removesuffix(".__init__"): file for name, file in own.items()}


def modules(*rooms: str, but: tuple[str, ...] = ()) -> list[str]:
    """The modules of some rooms, without those of others."""
    inside = [name for name in sources() if name.startswith(tuple(f"recordmill.{room}" for room in rooms))]
    return [name for name in inside if not name.startswith(tuple(f"recordmill.{room}" for room in but))]


def ending(*ends: str) -> tuple[str, ...]:
    """The modules of the kinds' rooms whose names end so."""
    return tuple(name.removeprefix("recordmill.") for name in modules("transforms") if name.endswith(ends))


SPECS = ending("_spec", "base.feature")
GRAPHS_OF_KINDS = ending("_graph", "base.graph", "tensorflow_features")
READING = modules(
    "pipeline.parallel", "pipeline.errors", "pipeline.safe_text", "pipeline.json_values",
    "pipeline.dataset", "pipeline.versions", "pipeline.reader",
    "pipeline.verify", "pipeline.rows", "pipeline.inspection", "pipeline.facts", "pipeline.adopt",
    "pipeline.build.images.transcode", "transforms",
    but=(*SPECS, *GRAPHS_OF_KINDS, "pipeline.reader.tf_data", "pipeline.reader.keras_input",
         "pipeline.reader.torch_data", "pipeline.facts.page", "pipeline.facts.contents",
         "pipeline.dataset.arrow_tables", "pipeline.verify.parity"),
)  # fmt: skip
LIGHT = modules(*SPECS, "pipeline.facts", "pipeline.sources", "pipeline.spec", "pipeline.init", "pipeline.forecast",
    "pipeline.export", "pipeline.cli", but=("pipeline.forecast.rehearsal",))  # fmt: skip
GRAPHS = modules(*GRAPHS_OF_KINDS, "pipeline.reader.tf_data", "pipeline.reader.keras_input",
    but=("transforms.engines.transform_graph",))  # fmt: skip
TRANSFORM = modules("transforms.engines.transform_graph")
JOB = modules("pipeline.build", "pipeline.forecast", but=("pipeline.build.beam", "pipeline.build.make_version"))
FRAMEWORKS = ["apache_beam", "tensorflow_transform", "tfx_bsl", "tensorflow"]
# rich, which Keras imports, is in no list that blocks it for TensorFlow
DATA = ["google_crc32c", "PIL", "psutil", "pyarrow", "pydantic", "sentencepiece", "typer", "yaml"]
OPTIONAL = ["boto3", "botocore", "cv2", "obstore", "simplejpeg"]  # without which the reader works too
TENSORFLOW_TEXT = "tensorflow_text"  # which some specs need, and no training machine
BLOCKED = {
    "reading": (READING, [*FRAMEWORKS, *DATA[2:], *OPTIONAL, "rich"]),
    "no framework": (LIGHT, FRAMEWORKS),
    "TensorFlow": (GRAPHS, [*FRAMEWORKS[:3], *DATA[2:], TENSORFLOW_TEXT]),
    "tf.Transform": (TRANSFORM, ["apache_beam", "PIL", "pydantic", "sentencepiece", TENSORFLOW_TEXT, "typer", "yaml"]),
    "the job without Beam": (JOB, ["apache_beam", TENSORFLOW_TEXT]),
}
BLOCK = """
import importlib, json, os, sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split():
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
"""
IMPORT = f"""{BLOCK}
for name in sys.argv[2].split():
    importlib.import_module(name)
"""
AFTER_TENSORFLOW = f"""{BLOCK}
import tensorflow

for loaded, blocked in json.loads(sys.argv[2]):
    if os.fork() == 0:
        assert not (loaded_already := set(blocked) & set(sys.modules)), loaded_already
        sys.argv[1] = " ".join(blocked)
        for name in loaded:
            importlib.import_module(name)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(1)
"""
"""Forks a process for each tier from one that has loaded TensorFlow alone, which takes ten seconds."""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, cwd="/")


@pytest.mark.parametrize("tier", ["reading", "no framework"])
def test_a_tier_loads_nothing_heavier(tier: str) -> None:
    loaded, blocked = BLOCKED[tier]
    assert loaded
    done = python(IMPORT, " ".join(blocked), " ".join(loaded))
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("tiers", [["TensorFlow"], ["tf.Transform", "the job without Beam"]])
def test_a_tier_above_tensorflow_loads_nothing_heavier(tiers: list[str]) -> None:
    given = [BLOCKED[tier] for tier in tiers]
    assert all(loaded and blocked for loaded, blocked in given)
    blocked_in_any = {name for _, blocked in given for name in blocked}
    done = python(AFTER_TENSORFLOW, " ".join(blocked_in_any), json.dumps(given))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "blocked"), [("pipeline.spec.model", "yaml"), ("transforms.texts.text_graph", "tensorflow")]
)
def test_what_is_blocked_cannot_be_loaded(module: str, blocked: str) -> None:
    done = python(IMPORT, blocked, f"recordmill.{module}")
    assert done.returncode == 1
    assert f"ModuleNotFoundError: blocked: {blocked}" in done.stderr


def inner_imports(file: Path) -> list[int]:
    """The lines of imports inside functions."""
    if not re.search(rb"^ +(from|import) ", file.read_bytes(), re.MULTILINE):
        return []
    functions = [
        node
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    inner = [node for function in functions for node in ast.walk(function)]
    return sorted({node.lineno for node in inner if isinstance(node, ast.Import | ast.ImportFrom)})


def test_every_room_stands_in_the_contract() -> None:
    """Checks that a list names every child of two folders, as import-linter's `exhaustive` does for one."""
    [rooms, *_] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = {name for layer in rooms["layers"] for name in re.split(r" [|:] ", layer)}
    there = {".".join(name.split(".")[:3]) for name in sources() if name.count(".") > 1}
    assert there | {"recordmill.augment", "recordmill.dataset", "recordmill.keras"} == named


INSIDE_FUNCTIONS = {
    "recordmill.__main__": "the command line: its packages may be missing",
    "recordmill.dataset": "decoders, workers, pictures and lists of versions, which opening a dataset does without",
    "recordmill.keras": "TensorFlow",
    "recordmill.pipeline.adopt.adopt": "PyYAML",
    "recordmill.pipeline.adopt.scanned": "protobuf",
    "recordmill.pipeline.build.beam.runners": "Google's clients",
    "recordmill.pipeline.build.beam.filesystem": "Beam",
    "recordmill.pipeline.build.build": "Beam and TensorFlow",
    "recordmill.pipeline.build.journal": "Arrow, which an adoption does without",
    "recordmill.pipeline.build.worker.filter": "TensorFlow",
    "recordmill.pipeline.cli.session": "TensorFlow and Beam",
    "recordmill.pipeline.cli.step": "Arrow and pydantic",
    "recordmill.pipeline.compare.distributions": "Arrow",
    "recordmill.pipeline.forecast.forecast": "TensorFlow",
    "recordmill.pipeline.reader.wire": "protobuf",
    "recordmill.pipeline.reader.keras_input": "JAX",
    "recordmill.pipeline.reader.input": "TensorFlow, Keras, PyTorch and JAX",
    "recordmill.pipeline.reader.local_shards": "`resource`, which Windows does not have",
    "recordmill.pipeline.parallel": "`fcntl`, which Windows does not have",
    "recordmill.pipeline.facts.sidecars": "Jinja and Arrow",
    "recordmill.pipeline.build.texts.chat": "Jinja",
    "recordmill.transforms.base.buffers": "`tempfile`, which Linux does not need",
    "recordmill.transforms.texts.tokenizers": "the packages `tokenizers` and `tiktoken`",
    "recordmill.pipeline.build.images.masks": "pycocotools",
    "recordmill.transforms.texts.tokenizers_graph": "TensorFlow Text",
}
"""The modules that import inside functions, and what need not be there."""


def test_imports_inside_functions_keep_something_heavy_away() -> None:
    found = {name for name, file in sources().items() if inner_imports(file)}
    commands = {name for name in sources() if re.fullmatch(r"recordmill\.pipeline\.cli\.\w+_commands", name)}
    assert found == commands | INSIDE_FUNCTIONS.keys()


MAINS = {"recordmill.pipeline.build.images.isolated_decoder"}
"""Modules run by `python -m`."""


def strings(file: Path) -> Iterator[str]:
    """Yields a module's strings, and the starts of f-strings."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_module_of_ours_is_named_by_a_string() -> None:
    """Import-linter sees no import by `import_module`, nor by a table of names."""
    own = sources().keys() - MAINS - {"recordmill"}
    naming = {name: file for name, file in sources().items() if re.search(rb"[\"']recordmill\.", file.read_bytes())}
    found = {
        name: {text for text in strings(file) if text in own or text == "recordmill."} for name, file in naming.items()
    }
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize("name", ["pipeline", "transforms", "pipeline.errors"])
def test_a_folder_is_no_package_of_its_own(name: str) -> None:
    """A second copy of `UserError` would be caught nowhere."""
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"import `recordmill.{name.partition('.')[0]}`" in done.stderr.splitlines()[-1]


def test_a_checkout_without_links_says_so(tmp_path: Path) -> None:
    (tmp_path / "recordmill").mkdir()
    (tmp_path / "recordmill/__init__.py").write_bytes((ROOT / "recordmill/__init__.py").read_bytes())
    for name in ("pipeline", "transforms"):
        (tmp_path / "recordmill" / name).write_text(f"../{name}")  # as git does without support for links
    done = subprocess.run(
        [sys.executable, "-c", "from recordmill import open_dataset"], cwd=tmp_path, capture_output=True, text=True
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: recordmill/pipeline and recordmill/transforms are text files here")
    assert "git config core.symlinks true" in last


READ = """
import sys
import numpy as np
from recordmill import open_dataset
from recordmill.augment import RandomFlip

train = open_dataset(sys.argv[3]).training_input(batch_size=3, augment=[RandomFlip()], dtype="uint8", threads=2)
for features, label in train.as_numpy():
    print(label.tolist(), int(features["image"].sum()), features["text"].shape)
print(sorted(set(sys.modules) & set(sys.argv[1].split())))
"""


def test_a_training_machine_reads_without_tensorflow(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path)
    heavy = [*FRAMEWORKS, *DATA[2:], "rich"]
    quick = python(IMPORT + READ, " ".join(heavy), "", str(tmp_path))
    plain = python(IMPORT + READ, " ".join([*heavy, *OPTIONAL]), "", str(tmp_path))
    assert (quick.returncode, plain.returncode) == (0, 0), quick.stderr + plain.stderr
    assert quick.stdout == plain.stdout
    lines = quick.stdout.splitlines()
    assert (len(lines), lines[-1]) == (4, "[]")


COMMAND = """
import sys
from recordmill.pipeline.cli.commands import main
sys.argv = ["recordmill", *sys.argv[1:]]
try:
    main()
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.mark.first(2)
@pytest.mark.parametrize(("arguments", "said", "heavy"), [
    (["--help"], "build", [*FRAMEWORKS, "numpy", "pandas", "pyarrow", "pydantic", "yaml"]),
    (["init", "--help"], "--name", [*FRAMEWORKS, "numpy", "pandas", "pyarrow", "yaml"]),
    (["build", "--help"], "--output", [*FRAMEWORKS, "numpy", "pandas", "pyarrow", "yaml"]),
    (["schema"], '"properties"', [*FRAMEWORKS, "pandas"]),
], ids=["--help", "init --help", "build --help", "schema"])  # fmt: skip
def test_a_quick_command_loads_little(arguments: list[str], said: str, heavy: list[str]) -> None:
    done = python(COMMAND, *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    loaded = done.stderr.split()
    assert "typer" in loaded
    assert sorted(set(heavy) & set(loaded)) == []


def test_one_module_counts_cores() -> None:
    """Any other would count those of the host, where a container has fewer."""
    counting = [name for name, file in sources().items() if re.search("cpu_count|sched_getaffinity", file.read_text())]
    assert counting == ["recordmill.pipeline.parallel"]


LOAD_SPEC = """
import sys
from recordmill import load_spec

print(len(load_spec(sys.argv[1]).features))
print(*sorted(name for name in sys.modules if name.partition(".")[0] in sys.argv[2:]))
"""


def test_a_spec_loads_its_options_alone(tmp_path: Path) -> None:
    """Checks that neither the sources' readers nor Arrow are loaded."""
    (tmp_path / "dataset.yaml").write_text(
        "name: a\nsource: [{format: csv, path: a.csv}, {format: image_folder, path: images}, 'reader:rows']\n"
        "features: {image: {kind: image, size: 8}, text: {kind: text}, label: {kind: category}}\n"
    )
    done = python(LOAD_SPEC, str(tmp_path / "dataset.yaml"), "recordmill", "pyarrow", *FRAMEWORKS)
    assert done.returncode == 0, done.stderr
    features, loaded = done.stdout.splitlines()
    assert features == "3"
    assert [name for name in loaded.split() if not name.startswith("recordmill")] == []
    assert len(loaded.split()) <= 50
