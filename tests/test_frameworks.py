"""PyTorch and JAX learn from a dataset where there is no TensorFlow: `make test-frameworks`.

`RECORDMILL_FRAMEWORKS` names the Python of an environment with `examples/frameworks/requirements.lock`.
"""

import os
import re
import runpy
import subprocess
from pathlib import Path

import pytest

from recordmill.pipeline.build.build import build
from recordmill.pipeline.spec.model import load_spec

ROOT = Path(__file__).parents[1]
IMAGES = 900
SCRIPTS = ["train_pytorch.py", "train_jax.py"]
# Ends with what the script ends with; whatever a reader must not need is as if it were not installed.
WITHOUT_TENSORFLOW = """
import runpy, sys
for name in "tensorflow keras apache_beam tensorflow_transform pyarrow pydantic yaml typer".split():
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
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [*command, "--epochs", str(epochs)], env=environment, cwd=dataset, capture_output=True, text=True, timeout=800
    )


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
    assert f"{script}: the model did not learn" in done.stderr
