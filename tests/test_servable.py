"""A trained model behind its dataset's transform scores raw rows as it scores stored ones."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from recordmill import Dataset, UserError, build, open_dataset, parse_spec
from recordmill.augment import CenterCrop
from recordmill.keras import servable
from recordmill.pipeline.private_folder import PREFIX
from tests.messages import assert_names, raises
from tests.opened import opened
from tests.pictures import saved
from tests.served_alone import alone

pytestmark = pytest.mark.slow
SPEC = """
name: toy
source: {{format: jsonl, path: "{0}/rows.jsonl"}}
key: id
splits: {{train: 1}}
features:
  a_tags: {{kind: categories, max_length: 3}}
  image: {{kind: image, size: [8, 8], store: png}}
  text: {{kind: text, max_length: 4, keep_length: true}}
  weight: {{kind: number}}
  label: {{kind: category}}
label: label
"""
ROWS = 12
Tensors = dict[str, Any]


def raw_rows() -> Tensors:
    """The raw values of the rows, by input; lists as a signature takes them."""
    tags = [["red", "blue"][: number % 3] for number in range(ROWS)]
    return {
        "a_tags": [tag for of_row in tags for tag in of_row],
        "a_tags_lengths": [len(of_row) for of_row in tags],
        "image": [saved(np.full((8, 8, 3), 20 * number, np.uint8), "PNG") for number in range(ROWS)],
        "text": [f"an {LABELS[number % 3]} of number {number}" * (number > 2) for number in range(ROWS)],
        "weight": [number / 7 for number in range(ROWS)],
        "label": [LABELS[number % 3] for number in range(ROWS)],
    }


LABELS = ["ant", "bee", "Kuh ü"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("toy")
    raw, lines = raw_rows(), []
    for number in range(ROWS):
        (folder / f"{number}.png").write_bytes(raw["image"][number])
        tags = ["red", "blue"][: number % 3]
        row = {name: raw[name][number] for name in ("text", "weight", "label")}
        lines.append(json.dumps({"id": f"{number:02}", "a_tags": tags, "image": f"{number}.png", **row}))
    (folder / "rows.jsonl").write_text("\n".join(lines))
    build(parse_spec(SPEC.format(folder)), str(folder / "out"))
    return open_dataset(folder / "out")


IMAGE, SMALL, TEXT = ((8, 8, 3), "float32"), ((4, 4, 3), "float32"), ((4,), "int64")


def inputs(**given: tuple[tuple[int | None, ...], str]) -> Tensors:
    keras.utils.set_random_seed(1)
    return {name: keras.Input(shape, name=name, dtype=dtype) for name, (shape, dtype) in given.items()}


def scores_of(tensors: list[Any]) -> Any:
    flat = [keras.layers.Flatten()(keras.ops.cast(tensor, "float32") / 9) for tensor in tensors]
    return keras.layers.Dense(3)(keras.layers.Concatenate()(flat) if len(flat) > 1 else flat[0])


def of_list(**given: Any) -> Any:
    tensors = list(inputs(**given).values())
    return keras.Model(tensors, scores_of(tensors))


def of_mapping(**given: Any) -> Any:
    tensors = inputs(**given)
    return keras.Model(tensors, scores_of(list(tensors.values())))


def of_nest() -> Any:
    tensors = inputs(image=IMAGE, text=TEXT, weight=((), "float32"))
    image, text, weight = tensors.values()
    return keras.Model([[image], {"text": text, "weight": weight}], scores_of([image, text, weight]))


def of_one(name: str | None) -> Any:
    image = keras.Input((8, 8, 3), name=name)
    return keras.Model(image, scores_of([image]))


def sequential(*first: Any) -> Any:
    return keras.Sequential([*first, keras.layers.Rescaling(1 / 9), keras.layers.Dense(3)])


def subclass() -> Any:
    class Counting(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.scores = keras.layers.Dense(3)

        def call(self, features: Tensors) -> Any:
            length = keras.ops.cast(features["text_length"], "float32")[:, None]
            return self.scores(keras.ops.concatenate([keras.ops.cast(features["text"], "float32") / 9, length], 1))

    return Counting()


def several_outputs() -> Any:
    image = keras.Input((8, 8, 3), name="image")
    flat = keras.layers.Flatten()(image)
    return keras.Model([image], [keras.layers.Dense(1, name="size")(flat), keras.layers.Dense(2, name="colour")(flat)])


class Form(NamedTuple):
    """A model, the options of its input, and the raw values that its clients send."""

    model: Callable[[], Any]
    options: Tensors
    sent: str


FORMS = {
    "a list": Form(lambda: of_list(image=IMAGE, text=TEXT), {}, "image text"),
    "a list of one": Form(lambda: of_list(text=TEXT), {}, "text"),
    "a mapping": Form(lambda: of_mapping(image=IMAGE, text=TEXT), {}, "image text"),
    "a nest": Form(of_nest, {}, "image text weight"),
    "one by its name": Form(lambda: of_one("image"), {}, "image"),
    "one of another name": Form(lambda: of_one(None), {"features": ["image"]}, "image"),
    "parts": Form(lambda: of_list(text_length=((), "int64"), text=TEXT), {}, "text"),
    "lists": Form(lambda: of_list(a_tags=((3,), "int64"), a_tags_length=((), "int64")), {}, "a_tags a_tags_lengths"),
    "a number as a column": Form(lambda: of_mapping(weight=((1,), "float32")), {}, "weight"),
    "masks": Form(lambda: of_list(text=TEXT, text_mask=((4,), "bool")), {"masks": True}, "text"),
    "pixels": Form(lambda: of_list(image=((8, 8, 3), "uint8")), {"dtype": "uint8"}, "image"),
    "pixels as numbers": Form(lambda: of_list(image=IMAGE), {"dtype": "uint8"}, "image"),
    "shorter texts": Form(lambda: of_list(text=((2,), "int64")), {"text_length": 2}, "text"),
    "longer texts": Form(lambda: of_list(text=((6,), "int64")), {"text_length": 6}, "text"),
    "another target": Form(lambda: of_list(text=TEXT, label=((), "int64")), {"label": "weight"}, "text label"),
    "a sequence": Form(sequential, {"features": ["text"]}, "text"),
    "a sequence of an input": Form(lambda: sequential(inputs(text=TEXT)["text"]), {"features": ["text"]}, "text"),
    "a subclass": Form(subclass, {"features": ["text", "image"]}, "image text"),
    "several outputs": Form(several_outputs, {}, "image"),
}
FIRST = ("a list", "parts", "a subclass", "a sequence", "pixels as numbers")


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "form", [pytest.param(name, marks=[pytest.mark.nightly] * (name not in FIRST)) for name in FORMS]
)
def test_a_served_row_is_what_the_model_was_trained_on(form: str, dataset: Dataset) -> None:
    make, options, sent = FORMS[form]
    model, read = make(), dataset.evaluation_input("train", batch_size=ROWS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Keras warns of inputs in another structure
        ((features, _),) = read.as_tf_data(model)
        wanted = model(features)
        served = servable(model, read)
    raw = raw_rows()
    assert sorted(served.signature.structured_input_signature[1]) == sorted(sent.split())
    given = served(**{name: raw[name] for name in sent.split()})
    ((keys, _),) = dataset.evaluation_input("train", batch_size=ROWS, with_key=True, features=[]).as_numpy()
    order = [int(key) for key in keys["key"]]
    if form == "several outputs":
        assert sorted(given) == ["colour", "size"]
        wanted, found = wanted[1].numpy(), given["colour"].numpy()
    elif form == "another target":
        wanted, found = wanted.numpy(), given["output"].numpy()
    else:
        wanted, found = -np.sort(-wanted.numpy()), given["scores"].numpy()
    np.testing.assert_allclose(found[order], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["a list", "one of another name", "a nest", "a sequence", "a subclass"])
@pytest.mark.parametrize("face", ["as_tf_data", "native", "as_keras"])
def test_a_model_learns_and_a_servable_of_before_has_its_weights(form: str, face: str, dataset: Dataset) -> None:
    make, options, sent = FORMS[form]
    model, train = make(), dataset.training_input("train", batch_size=4, epochs=1, **options)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    served, raw = servable(model, train), raw_rows()
    row = {name: raw[name][5:6] for name in sent.split()}
    before = served(**row)["scores"].numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches = train.as_keras(model) if face == "as_keras" else train.as_tf_data(model, native=face == "native")
        model.fit(batches, shuffle=False, verbose=0)
    assert np.abs(served(**row)["scores"].numpy() - before).max() > 1e-4


@pytest.mark.nightly
def test_a_batch_without_a_label_is_no_pair(dataset: Dataset) -> None:
    model, read = of_list(image=IMAGE, text=TEXT), dataset.evaluation_input("train", batch_size=ROWS, label=None)
    assert model.predict(read.as_tf_data(model), verbose=0).shape == (ROWS, 3)


@pytest.mark.parametrize(("make", "options", "facts"), [
    (lambda: of_list(sound=IMAGE), {}, ["'sound'", "a_tags, a_tags_length, image, text, "]),
    (lambda: of_list(image=TEXT), {}, ["'image'", "int64 of shape (None, 4)", "float32 of shape (4, 8, 8"]),
    (lambda: of_list(weight=((), "int64")), {}, ["'weight'", "int64", "float32"]),
    (lambda: of_one(None), {}, ["'keras_tensor", "a_tags, image, text, weight"]),
    (sequential, {}, ["one input", "a_tags, image, text, weight", "features="]),
    (lambda: of_list(text=TEXT), {"text": "ragged"}, ["'text' as int64"]),
])  # fmt: skip
def test_an_input_refuses_a_model_of_something_else(
    make: Callable[[], Any], options: Tensors, facts: list[str], dataset: Dataset
) -> None:
    train = dataset.training_input("train", batch_size=4, **options)
    with raises(UserError, *facts):
        train.as_tf_data(make())


@pytest.mark.parametrize(("make", "options", "facts"), [
    (lambda: of_list(image=SMALL), {"augment": [CenterCrop(4)]}, ["'image'", "(None, 8, 8, 3)", "`servable`"]),
    (lambda: of_list(key=((), "string"), text=TEXT), {"with_key": True}, ["'key'", "a served row", "a_tags"]),
])  # fmt: skip
def test_an_input_warns_of_what_no_served_row_has(
    make: Callable[[], Any], options: Tensors, facts: list[str], dataset: Dataset
) -> None:
    with pytest.warns(UserWarning, match=facts[0]) as warned:
        dataset.evaluation_input("train", batch_size=4, **options).as_tf_data(make())
    assert_names(warned[0].message, *facts)
    assert warned[0].filename == __file__


@pytest.mark.nightly
def test_a_served_model_needs_tensorflow_and_its_own_inputs_alone(dataset: Dataset, tmp_path: Path) -> None:
    model = of_mapping(image=IMAGE)
    with opened() as paths:
        servable(model, dataset).save(tmp_path / "models/toy/1")
    modules = [path for path in paths if "__autograph" in path]
    assert [path for path in modules if PREFIX not in path] == []  # of a folder that others write into
    assert modules
    serve = alone(str(tmp_path / "models/toy/1")).signatures["serving_default"]
    assert [*serve.structured_input_signature[1]] == ["image"]
    served = serve(image=tf.constant([raw_rows()["image"][number] for number in (3, 11)]))
    ((features, _),) = dataset.evaluation_input("train", batch_size=ROWS, with_key=True).as_numpy()
    scores = model({"image": features["image"]}).numpy()
    for row, key in enumerate((b"03", b"11")):
        of_key = scores[[bytes(each) for each in features["key"]].index(key)]
        order = np.argsort(-of_key)
        assert [name.decode() for name in served["classes"].numpy()[row]] == [dataset.classes[id_] for id_ in order]
        np.testing.assert_allclose(served["scores"].numpy()[row], of_key[order], rtol=1e-5)


def test_scores_are_shares_and_as_many_as_wanted(dataset: Dataset) -> None:
    model, raw = of_list(image=IMAGE, text=TEXT), raw_rows()
    served = servable(model, dataset, activation="softmax", top=2)
    given = served(image=raw["image"][5:6] * 2, text=["an ant", "nothing known"])
    assert given["classes"].shape == given["scores"].shape == (2, 2)
    assert float(given["scores"].numpy().sum(1).max()) <= 1
    assert given["scores"].numpy()[:, 0].min() >= 1 / 3


@pytest.mark.nightly
def test_a_model_of_cropped_images_says_how_they_are_made(dataset: Dataset) -> None:
    model, image = of_mapping(image=SMALL), raw_rows()["image"][5:6]
    with raises(UserError, "'image'", "(None, 4, 4, 3)", "(None, 8, 8, 3)", "`prepare`"):
        servable(model, dataset)
    cropped = servable(model, dataset, prepare=lambda features: {"image": features["image"][:, 2:6, 2:6]})
    given = cropped(image=image, text=[""], weight=[0], a_tags=[], a_tags_lengths=[0])
    assert given["scores"].shape == (1, 3)
    with raises(UserError, "'image'", "`prepare`", "let it return"):
        servable(model, dataset, prepare=lambda features: {})
