"""What a module loads: standard library, then TensorFlow, then tf.Transform, then Apache Beam; never a heavier tier."""

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import hand_made

ROOT = Path(__file__).parents[1]


def sources() -> dict[str, Path]:
    """The modules of the two packages by name."""
    files = [file for package in ("pipeline", "transforms") for file in (ROOT / package).rglob("*.py")]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


STDLIB = """
    pipeline pipeline.duplicates pipeline.output pipeline.rejects
    pipeline.__main__ pipeline.checks pipeline.disk_failures pipeline.duplicates.words pipeline.errors
    pipeline.globs pipeline.image_refs pipeline.in_order pipeline.inner_paths pipeline.installed pipeline.keys
    pipeline.manifest pipeline.names pipeline.output.inventory pipeline.output.leases pipeline.output.pointer
    pipeline.output.prune pipeline.output.storage pipeline.output.stores pipeline.output.stores.base
    pipeline.output.stores.buckets pipeline.output.stores.gcs pipeline.output.stores.posix pipeline.output.stores.s3
    pipeline.output.versions pipeline.own_preprocessing pipeline.printable pipeline.progress pipeline.redaction
    pipeline.rejects.files pipeline.rejects.machine_faults pipeline.rejects.reasons pipeline.rejects.second_try
    pipeline.reports pipeline.runs pipeline.sockets pipeline.steps pipeline.tracebacks pipeline.user_code
    pipeline.version pipeline.watch pipeline.worker_process transforms transforms.finish_options
    transforms.graph_ops transforms.image_header transforms.stored transforms.text_options
""".split()
TF_READER = ["pipeline.reader.keras_callback", "pipeline.reader.tf_input", "pipeline.reader.tf_records"]
NUMPY = """
    pipeline.duplicates.clusters pipeline.tfrecord transforms.augment transforms.augment_batches
    transforms.augment_numpy transforms.augment_places transforms.color_matrix transforms.luma transforms.pixels
""".split()
NUMPY += [name for name in sources() if name.startswith("pipeline.reader") and name not in TF_READER]
WITH_SOURCES = [f"pipeline.verify.{name}" for name in ("parity", "raw_rows", "repair", "with_sources")]
NUMPY += [name for name in sources() if name.startswith("pipeline.verify") and name not in WITH_SOURCES]
LIGHT_PACKAGES = ("pipeline.kinds", "pipeline.sources", "pipeline.starter")
LIGHT = """
    pipeline.arrow_files pipeline.cli pipeline.columns pipeline.display pipeline.duplicates.choice
    pipeline.duplicates.contents pipeline.duplicates.counts pipeline.duplicates.files pipeline.duplicates.options
    pipeline.duplicates.perceptual_hash pipeline.free_space pipeline.isolation pipeline.layout pipeline.listings
    pipeline.options pipeline.output.show pipeline.packing pipeline.plan pipeline.publish pipeline.quantiles
    pipeline.rejects.limits pipeline.rejects.payloads pipeline.rejects.places pipeline.results pipeline.rows
    pipeline.screen pipeline.session pipeline.show pipeline.spec pipeline.spec_errors pipeline.spec_yaml
    pipeline.spill pipeline.split_by pipeline.statistics pipeline.strata pipeline.text_lengths pipeline.text_packing
    pipeline.tfds_files pipeline.tokenizer_models pipeline.transcode pipeline.work
""".split()
LIGHT += [name for name in sources() if name.startswith(LIGHT_PACKAGES)]
TENSORFLOW = """
    pipeline.examples pipeline.isolated_decoder pipeline.packed_records transforms.augment_batches_tensorflow
    transforms.augment_tensorflow transforms.boxes transforms.categories transforms.category transforms.cleaning
    transforms.exif transforms.finish transforms.geometry transforms.image transforms.image_decode
    transforms.image_encode transforms.image_resize transforms.image_sequence transforms.image_sides transforms.kind
    transforms.kinds transforms.lists transforms.logarithm transforms.number transforms.numbers transforms.own
    transforms.raw transforms.text transforms.tokenizers
""".split()
TENSORFLOW += TF_READER
TEXT = ["transforms.text_ops"]
TRANSFORM = "transforms.preprocessing transforms.serving".split()
JOB = """
    pipeline.analysis pipeline.descriptions pipeline.duplicates.reading pipeline.first_pass pipeline.graph_inputs
    pipeline.images pipeline.reading pipeline.rejects.retry pipeline.shards pipeline.tokenizer_training
    pipeline.verify.parity pipeline.verify.raw_rows
""".split()
BEAM = """
    pipeline.analyzers pipeline.build pipeline.files pipeline.job pipeline.moments pipeline.preparation
    pipeline.runners pipeline.verify.repair pipeline.verify.with_sources pipeline.vocabularies
""".split()
FRAMEWORKS = ["apache_beam", "tensorflow_transform", "tfx_bsl", "tensorflow"]
# rich, which Keras imports, is in no list that blocks it for TensorFlow
DATA = ["google_crc32c", "PIL", "psutil", "pyarrow", "pydantic", "sentencepiece", "typer", "yaml"]
OPTIONAL = ["cv2", "fsspec", "simplejpeg"]  # without which the reader works too
TENSORFLOW_TEXT = "tensorflow_text"  # which some specs need, and no training machine
BLOCKED = {
    "standard library": (STDLIB, [*FRAMEWORKS, *DATA, "numpy", "rich"]),
    "NumPy": (NUMPY, [*FRAMEWORKS, *DATA[2:], *OPTIONAL, "rich"]),
    "no framework": (LIGHT, FRAMEWORKS),
    "TensorFlow": (TENSORFLOW, [*FRAMEWORKS[:3], *DATA[2:], TENSORFLOW_TEXT]),
    "TensorFlow Text": (TEXT, [*FRAMEWORKS[:3], *DATA]),
    "tf.Transform": (TRANSFORM, ["apache_beam", "PIL", "pydantic", "sentencepiece", TENSORFLOW_TEXT, "typer", "yaml"]),
    "the job without Beam": (JOB, ["apache_beam", TENSORFLOW_TEXT]),
}
IMPORT = """
import importlib, sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split():
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
for name in sys.argv[2].split():
    importlib.import_module(name)
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, cwd="/")


def test_every_module_is_in_one_tier() -> None:
    counted = Counter([*STDLIB, *NUMPY, *LIGHT, *TENSORFLOW, *TEXT, *TRANSFORM, *JOB, *BEAM])
    assert counted == Counter(sources().keys())


@pytest.mark.parametrize("tier", BLOCKED)
def test_a_tier_loads_nothing_heavier(tier: str) -> None:
    modules, blocked = BLOCKED[tier]
    done = python(IMPORT, " ".join(blocked), " ".join(modules))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "blocked"),
    [("pipeline.layout", "numpy"), ("pipeline.spec", "yaml"), ("transforms.text", "tensorflow"),
     ("pipeline.analyzers", "apache_beam"), ("transforms.serving", "tensorflow_transform"),
     ("transforms.text_ops", "tensorflow_text"), ("pipeline.transcode", "PIL")],
)  # fmt: skip
def test_what_is_blocked_cannot_be_loaded(module: str, blocked: str) -> None:
    done = python(IMPORT, " ".join([blocked, *FRAMEWORKS]) if blocked not in FRAMEWORKS else blocked, module)
    assert done.returncode == 1
    assert f"ModuleNotFoundError: blocked: {blocked}" in done.stderr


def inner_imports(file: Path) -> list[int]:
    """The lines of imports inside functions."""
    functions = [
        node
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    inner = [node for function in functions for node in ast.walk(function)]
    return sorted({node.lineno for node in inner if isinstance(node, ast.Import | ast.ImportFrom)})


def test_only_the_command_line_imports_inside_functions() -> None:
    found = {name for name, file in sources().items() if inner_imports(file)}
    assert found == {"pipeline.cli", "pipeline.session"}


READ = """
import sys
import numpy as np
from pipeline.reader import open_dataset
from transforms.augment import RandomFlip

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
from pipeline.cli import main
sys.argv = ["recordmill", *sys.argv[1:]]
try:
    main()
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "said", "heavy"),
    [
        (["--help"], "build", [*FRAMEWORKS, "numpy", "pandas", "pyarrow", "pydantic", "yaml"]),
        (["init", "--help"], "--name", [*FRAMEWORKS, "numpy", "pandas", "pyarrow", "yaml"]),
        (["build", "--help"], "--output", [*FRAMEWORKS, "numpy", "pandas", "pyarrow", "yaml"]),
        (["schema"], '"properties"', [*FRAMEWORKS, "pandas"]),
    ],
    ids=["--help", "init --help", "build --help", "schema"],
)
def test_a_quick_command_loads_little(arguments: list[str], said: str, heavy: list[str]) -> None:
    done = python(COMMAND, *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    loaded = done.stderr.split()
    assert "typer" in loaded
    assert sorted(set(heavy) & set(loaded)) == []
