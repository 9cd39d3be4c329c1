"""PyTorch, JAX and Keras learn from a dataset without TensorFlow: `make test-frameworks`.

`RECORDMILL_FRAMEWORKS` names the Python of an environment with `examples/frameworks/requirements.lock`.
"""

import json
import os
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.build.build import build
from recordmill.pipeline.spec.model import load_spec
from tests.emulators import free_port
from tests.messages import assert_names

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
IMAGES = 900
SCRIPTS = ["train_pytorch.py", "train_jax.py"]
# Ends with what the script ends with; whatever a reader must not need is as if it were not installed.
WITHOUT_TENSORFLOW = """
import runpy, sys
for name in "tensorflow apache_beam tensorflow_transform pyarrow pydantic yaml typer".split():
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def interpreter() -> str:
    named = os.environ.get("RECORDMILL_FRAMEWORKS")
    if not named:
        pytest.skip("RECORDMILL_FRAMEWORKS names no Python with torch and jax: make test-frameworks")
    return named


@pytest.fixture(scope="module")
def shapes(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of examples/shapes, of fewer pictures."""
    folder = tmp_path_factory.mktemp("frameworks")
    runpy.run_path(str(ROOT / "examples/shapes/generate.py"))["generate"](folder / "images", IMAGES, 0)
    spec = (ROOT / "examples/shapes/dataset.yaml").read_text().replace("../../demo/data/images", "images")
    (folder / "dataset.yaml").write_text(spec)
    build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"))
    return folder / "out"


def train(interpreter: str, script: str, dataset: Path, epochs: int) -> subprocess.CompletedProcess[str]:
    command = [interpreter, "-c", WITHOUT_TENSORFLOW, str(ROOT / "examples/frameworks" / script), str(dataset)]
    command += ["--epochs", str(epochs)]
    return subprocess.run(command, env=ENVIRONMENT, cwd=dataset, capture_output=True, text=True, timeout=800)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_model_learns_without_tensorflow(script: str, interpreter: str, shapes: Path) -> None:
    done = train(interpreter, script, shapes, epochs=8)
    assert done.returncode == 0, done.stderr
    found = re.search(r"test split: ([0-9.]+)", done.stdout)
    assert found, done.stdout
    assert 0.6 <= float(found[1]) <= 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_model_that_was_not_trained_is_told(script: str, interpreter: str, shapes: Path) -> None:
    done = train(interpreter, script, shapes, epochs=0)
    assert done.returncode == 1
    assert_names(done.stderr, script)


def start(interpreter: str, program: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """Starts a program of `tests/in_frameworks.py`."""
    command = [interpreter, "-c", WITHOUT_TENSORFLOW, str(ROOT / "tests/in_frameworks.py"), program, *arguments]
    environment = {**ENVIRONMENT, "KERAS_BACKEND": "jax", **environment}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: "subprocess.Popen[str]") -> Any:
    printed, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return json.loads(printed.splitlines()[-1])


def test_tensors_are_the_readers_arrays_and_go_on_exactly(interpreter: str, shapes: Path) -> None:
    found = answer(start(interpreter, "torch_bits", str(shapes)))
    assert found["equal"]
    assert found["resumed"]
    assert found["length"]
    assert "num_workers=0" in found["refused"]
    assert found["types"] == ["list", "torch.bfloat16"]


def test_jax_arrays_are_the_readers_and_go_on_exactly(interpreter: str, shapes: Path) -> None:
    assert answer(start(interpreter, "jax_bits", str(shapes))) == {"equal": True, "resumed": True}


def test_numbers_that_jax_would_wrap_are_refused(interpreter: str, tmp_path: Path) -> None:
    found = answer(start(interpreter, "whole_numbers", str(tmp_path)))
    assert found.pop("wide") == [3_000_000_000 + row for row in range(4)]
    for refused in found.values():
        assert_names(refused, "'user'", 3_000_000_000, "int32", "jax_enable_x64")


def test_two_jax_processes_see_the_global_batches_of_one(interpreter: str, shapes: Path) -> None:
    port = str(free_port())
    processes = [start(interpreter, "jax_processes", str(shapes), str(index), "2", port) for index in range(2)]
    assert [answer(process) for process in processes] == answer(start(interpreter, "jax_whole", str(shapes), "2"))


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_fits_to_the_bits_of_the_reader(backend: str, interpreter: str, shapes: Path) -> None:
    found = answer(start(interpreter, "keras_bits", str(shapes), KERAS_BACKEND=backend))
    assert found["equal"]
    assert "shuffle=False" in found["refused"]
    assert "'key'" in found["strings"]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_fit_that_ended_in_an_epoch_goes_on_exactly(
    backend: str, interpreter: str, shapes: Path, tmp_path: Path
) -> None:
    found = answer(start(interpreter, "keras_resumed", str(shapes), str(tmp_path), KERAS_BACKEND=backend))
    assert found == {"equal": True}


@pytest.mark.parametrize("program", ["torch_weights", "accelerate_weights", "lightning_weights"])
def test_a_killed_training_ends_with_the_same_weights(
    program: str, interpreter: str, shapes: Path, tmp_path: Path
) -> None:
    whole = answer(start(interpreter, program, str(shapes), str(tmp_path / "a"), "0"))
    for dies_after in (17, 35):
        killed = start(interpreter, program, str(shapes), str(tmp_path / "b"), str(dies_after))
        _, errors = killed.communicate(timeout=600)
        assert killed.returncode == 9, errors
    assert answer(start(interpreter, program, str(shapes), str(tmp_path / "b"), "0")) == whole


def test_grain_and_samplers_ask_for_rows_by_number(interpreter: str, shapes: Path) -> None:
    assert answer(start(interpreter, "grain_rows", str(shapes))) == {"grain": True, "torch": True}
