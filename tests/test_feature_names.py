"""Features named after Python's keywords: the serving model takes them with an underscore."""

import keyword

import keras
import pytest
import tensorflow as tf

from recordmill import UserError, build, open_dataset, parse_spec
from recordmill.keras import servable
from recordmill.pipeline.versions.publishing import Published
from tests.messages import raises
from tests.tables import write_jsonl

LISTS = ("in", "is")
SPEC = """
name: keywords
source: {{format: jsonl, path: "{0}/rows.jsonl"}}
key: id
splits: {{train: 1}}
label: class
features:
  class: {{kind: category}}
"""


OTHERS = [name for name in keyword.kwlist if name != "class"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("keywords")
    row = {"id": "0", "class": "a"} | {name: [0] if name in LISTS else 0 for name in OTHERS}
    write_jsonl(folder / "rows.jsonl", [row])
    kinds = {name: "numbers" if name in LISTS else "number" for name in OTHERS}
    features = "".join(f"  '{name}': {{kind: {kind}, normalize: none}}\n" for name, kind in kinds.items())
    return build(parse_spec(SPEC.format(folder) + features), str(folder / "out"))


@pytest.mark.slow
def test_serving_takes_a_keyword_with_an_underscore(published: Published) -> None:
    signatures = tf.saved_model.load(f"{published.folder}/serving").signatures
    assert signatures["serving_default"].structured_input_signature[1].keys() == {
        *(f"{name}_" for name in keyword.kwlist if name != "class"), *(f"{name}__lengths" for name in LISTS)
    }  # fmt: skip
    assert "class_" in signatures["with_label"].structured_input_signature[1]


@pytest.mark.slow
def test_a_served_model_takes_it_too(published: Published) -> None:
    given = {"from": keras.Input((), name="from"), "for": keras.Input((), name="for")}
    model = keras.Model(given, keras.layers.Add()([*given.values()]))
    served = servable(model, open_dataset(published.folder))
    assert served(from_=[1.0, 2.0], for_=[3.0, 4.0])["output"].numpy().tolist() == [4.0, 6.0]


def test_two_features_with_one_serving_input_are_refused() -> None:
    with raises(UserError, "'class_'", "'class'"):
        parse_spec(SPEC.format("x") + "  class_: {kind: number}\n")
