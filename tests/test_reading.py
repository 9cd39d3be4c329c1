"""Reading as a training machine does: with what it has alone, as `docs/reading.md` says, and without Recordmill."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from recordmill import open_dataset
from tests import hand_made

ROOT = Path(__file__).parents[1]
# Not in the list: rich, which Keras itself imports.
NOT_THERE = ["apache_beam", "google.cloud", "pyarrow", "pydantic", "tensorflow_transform", "typer", "yaml"]

TRAIN = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == blocked or name.startswith(blocked + ".") for blocked in sys.argv[2].split()):
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
from recordmill import open_dataset

dataset = open_dataset(sys.argv[1])
dataset.classes, dataset.to_words("text", [[2, 0]]), dataset.label_counts("train")
print("TensorFlow before an input:", "tensorflow" in sys.modules)
train = dataset.training_input("train", batch_size=5, features=["image"])

import keras

keras.utils.set_random_seed(0)
image = keras.Input(train.element_spec[0]["image"].shape[1:], name="image")
seen = keras.layers.GlobalAveragePooling2D()(image)
model = keras.Model({"image": image}, keras.layers.Dense(dataset.num_classes, activation="softmax")(seen))
model.compile(keras.optimizers.Adam(0.5), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train.as_tf_data(), epochs=20, verbose=0)
validation = dataset.evaluation_input("validation", batch_size=2, features=["image"])
print("accuracy:", model.evaluate(validation.as_tf_data(), verbose=0, return_dict=True)["accuracy"])
"""


@pytest.mark.nightly
def test_tensorflow_alone_reads_and_trains(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path)
    done = subprocess.run([sys.executable, "-c", TRAIN, str(tmp_path), " ".join(NOT_THERE)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["TensorFlow before an input: False", "accuracy: 1.0"]


def snippet(heading: str, place: int = 0) -> str:
    """The page's Python after a heading, with batches that the hand-made dataset can fill."""
    _, after = (ROOT / "docs/reading.md").read_text().split(f"# {heading}\n")
    code = re.findall(r"^```python\n(.*?)^```", after, re.DOTALL | re.MULTILINE)[place]
    return code.replace("(256)", "(4)").replace("batch_size=256", "batch_size=4")


def run(*codes: str, **names: Any) -> dict[str, Any]:
    for code in codes:
        exec(compile(code, "docs/reading.md", "exec"), names)  # noqa: S102
    return names


@pytest.mark.parametrize("changes", [
    {},
    {"image": hand_made.image("jpeg")},
    {"image": hand_made.image("raw")},
    {"image": hand_made.image("png", "uint8"), "text": hand_made.text(None)},
    {"image": {**hand_made.image(), "channel_order": "bgr"}},
], ids=["png", "jpeg", "raw", "uint8 and any length", "bgr"])  # fmt: skip
def test_plain_tf_data_reads_the_same(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_made.write_dataset(tmp_path / "out/emoji", {**hand_made.FEATURES, **changes})
    monkeypatch.chdir(tmp_path)
    plain = list(run(snippet("Without Recordmill"))["train"])
    read = list(open_dataset("out/emoji").evaluation_input("train", batch_size=4).as_numpy())
    assert len(plain) == len(read) == 3
    for (features, label), (expected, expected_label) in zip(plain, read, strict=True):
        np.testing.assert_array_equal(label, expected_label)
        assert features.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(features[name], expected[name])
            assert features[name].dtype == expected[name].dtype


@pytest.fixture
def hand_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_made.write_dataset(tmp_path / "out/emoji")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("hand_made_here")
def test_the_keras_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names = run(snippet("Reading a dataset"), snippet("With Keras"))
    assert names["model"].output_shape == (None, 2)
    assert len(names["train"]) == 2
    printed = capsys.readouterr().out.splitlines()
    assert printed[-4:] == ["dark ['über', 'sky']", "bright ['sky', 'a', 'tree']", "dark []", "bright ['tree']"]


@pytest.mark.usefixtures("hand_made_here")
def test_a_native_pipeline_feeds_a_model_that_augments() -> None:
    names = run(snippet("With Keras", 1), emoji=open_dataset("out/emoji"), keras=keras)
    features, label = next(iter(names["batches"].take(1)))
    assert len(label) == 4
    assert names["augment"](features["image"]).shape == (4, 28, 28, 3)


@pytest.mark.usefixtures("hand_made_here")
def test_each_replica_gets_its_part() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    opened = {"emoji": open_dataset("out/emoji"), "tf": tf, "strategy": strategy}
    batches = list(run(snippet("With Keras", 2), **opened)["batches"])
    assert len(batches) == 2
    for _, label in batches:
        assert [len(part) for part in strategy.experimental_local_results(label)] == [2, 2]


@pytest.mark.usefixtures("hand_made_here")
def test_a_resumed_input_goes_on_with_the_batch_that_would_have_come() -> None:
    names = run(snippet("Reading a dataset"), snippet("Checkpoints and resuming"))
    expected, label = next(names["batches"])
    found, found_label = next(names["train"].as_numpy())
    np.testing.assert_array_equal(found_label, label)
    np.testing.assert_array_equal(found["count"], expected["count"])
