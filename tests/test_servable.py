"""A trained model behind the transform of its dataset: raw rows give what the model gives for the stored ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import Dataset, UserError, build, open_dataset, parse_spec
from recordmill.pipeline.private_folder import PREFIX
from tests.opened import opened
from tests.pictures import saved

pytestmark = pytest.mark.slow
SPEC = """
name: toy
source: {{format: jsonl, path: "{0}/rows.jsonl"}}
key: id
splits: {{train: 1}}
features:
  a_tags: {{kind: categories, max_length: 3}}
  image: {{kind: image, size: [8, 8], store: png}}
  text: {{kind: text, max_length: 4}}
  label: {{kind: category}}
label: label
"""
SERVE = """
import importlib.abc, json, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("recordmill", "tensorflow_transform", "apache_beam"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import tensorflow as tf

folder, *images = sys.argv[1:]
serve = tf.saved_model.load(folder).signatures["serving_default"]
images = tf.constant([open(image, "rb").read() for image in images])
given = serve(image=images, a_tags=tf.constant(["red", "blue", "red"]), a_tags_lengths=tf.constant([3, 0], tf.int64))
print(json.dumps({
    "inputs": sorted(serve.structured_input_signature[1]),
    "classes": [[name.decode() for name in row] for row in given["classes"].numpy()],
    "scores": given["scores"].numpy().tolist(),
}))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("toy")
    rows = []
    for number in range(12):
        pixels = np.full((8, 8, 3), 20 * number, np.uint8)
        (folder / f"{number}.png").write_bytes(saved(pixels, "PNG"))
        label = ["ant", "bee", "Kuh ü"][number % 3]
        tags = ["red", "blue"][: number % 3]
        rows.append(
            {"id": str(number), "a_tags": tags, "image": f"{number}.png", "text": f"an {label}", "label": label}
        )
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build(parse_spec(SPEC.format(folder)), str(folder / "out"))
    return open_dataset(folder / "out")


def model_of(**inputs: Any) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    given = {name: keras.Input(shape, name=name, dtype=dtype) for name, (shape, dtype) in inputs.items()}
    flat = [keras.layers.Flatten()(keras.ops.cast(tensor, "float32")) for tensor in given.values()]
    joined = keras.layers.Concatenate()(flat) if len(flat) > 1 else flat[0]
    return keras.Model(given, keras.layers.Dense(3)(joined))


def expected(model: Any, dataset: Dataset, names: list[str]) -> dict[str, Any]:
    (batch,) = dataset.evaluation_input("train", batch_size=12, with_key=True).as_numpy()
    scores = model({name: batch[0][name] for name in names}).numpy()
    return dict(zip([bytes(key).decode() for key in batch[0]["key"]], scores, strict=True))


@pytest.mark.nightly
def test_a_served_model_needs_tensorflow_its_own_inputs_and_lists_alone(dataset: Dataset, tmp_path: Path) -> None:
    import tensorflow as tf

    from recordmill.keras import servable

    model = model_of(image=((8, 8, 3), "float32"))
    joined = servable(model, dataset)
    given = {"a_tags": ["red"] * 3, "a_tags_lengths": [3, 0], "image": ["", ""]}
    assert joined._with_blanks({name: tf.constant(given[name]) for name in given})["text"].shape == (2,)
    with opened() as paths:
        joined.save(tmp_path / "1")
    modules = [path for path in paths if "__autograph" in path]
    assert [path for path in modules if PREFIX not in path] == []  # of a folder that others write into
    assert modules
    images = [str(Path(dataset.folder).parents[2] / f"{number}.png") for number in (3, 11)]
    done = subprocess.run([sys.executable, "-c", SERVE, str(tmp_path / "1"), *images], capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr.decode()
    served, scores = json.loads(done.stdout), expected(model, dataset, ["image"])
    assert served["inputs"] == ["a_tags", "a_tags_lengths", "image"]
    for row, key in enumerate(("3", "11")):
        order = np.argsort(-scores[key])
        assert served["classes"][row] == [dataset.classes[id_] for id_ in order]
        np.testing.assert_allclose(served["scores"][row], scores[key][order], rtol=1e-5)


def test_scores_are_shares_and_as_many_as_wanted(dataset: Dataset) -> None:
    from recordmill.keras import servable

    model = model_of(image=((8, 8, 3), "float32"), text=((4,), "int64"))
    image = (Path(dataset.folder).parents[2] / "5.png").read_bytes()
    given = servable(model, dataset, activation="softmax", top=2)(
        image=[image] * 2, text=["an ant", "nothing known"], a_tags=["red"], a_tags_lengths=[0, 1]
    )
    assert given["classes"].shape == given["scores"].shape == (2, 2)
    assert float(given["scores"].numpy().sum(1).max()) <= 1
    assert given["scores"].numpy()[:, 0].min() >= 1 / 3


def test_a_model_of_cropped_images_says_how_they_are_made(dataset: Dataset) -> None:
    from recordmill.keras import servable

    model = model_of(image=((4, 4, 3), "float32"))
    with pytest.raises(
        UserError, match=r"takes 'image' of shape \(None, 4, 4, 3\).* \(None, 8, 8, 3\): give `prepare`"
    ):
        servable(model, dataset)
    image = (Path(dataset.folder).parents[2] / "5.png").read_bytes()
    cropped = servable(model, dataset, prepare=lambda features: {"image": features["image"][:, 2:6, 2:6]})
    assert cropped(image=[image], text=[""], a_tags=[], a_tags_lengths=[0])["scores"].shape == (1, 3)


def test_a_model_of_other_features_is_named(dataset: Dataset) -> None:
    from recordmill.keras import servable

    with pytest.raises(
        UserError, match="the model takes 'sound', the transform gives a_tags, a_tags_length, image, text"
    ):
        servable(model_of(sound=((8,), "float32")), dataset)
