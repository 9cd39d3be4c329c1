"""Features named after Python's keywords: built, read, verified and served like others."""

import keyword

import keras
import pytest
import tensorflow as tf

from recordmill import Spec, UserError, build, open_dataset, parse_spec
from recordmill.keras import servable
from recordmill.pipeline.build.run_options import Published
from recordmill.pipeline.verify.parity import with_parity
from recordmill.pipeline.verify.verify import verify
from tests.messages import raises
from tests.tables import write_jsonl

ROWS = 20
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
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    folder = tmp_path_factory.mktemp("keywords")
    rows = [
        {"id": str(row), "class": "ab"[row % 2]} | {name: [row] if name in LISTS else row for name in OTHERS}
        for row in range(ROWS)
    ]
    write_jsonl(folder / "rows.jsonl", rows)
    kinds = {name: "numbers" if name in LISTS else "number" for name in OTHERS}
    features = "".join(f"  '{name}': {{kind: {kind}, normalize: none}}\n" for name, kind in kinds.items())
    return parse_spec(SPEC.format(folder) + features)


@pytest.fixture(scope="module")
def published(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Published:
    return build(spec, str(tmp_path_factory.mktemp("out")))


@pytest.mark.slow
def test_every_keyword_names_a_feature(published: Published) -> None:
    dataset = open_dataset(published.folder)
    batch, labels = next(dataset.evaluation_input("train", batch_size=ROWS, with_key=True).as_numpy())
    numbers = [float(key) for key in batch["key"]]
    assert [dataset.class_names("class")[label] for label in labels] == ["ab"[int(number) % 2] for number in numbers]
    for name in set(keyword.kwlist) - {"class", *LISTS}:
        assert batch[name].tolist() == numbers, name
    assert batch["in"][:, 0].tolist() == numbers


@pytest.mark.slow
def test_verify_compares_it_with_the_sources(published: Published, spec: Spec) -> None:
    findings = with_parity(verify(published.folder), spec, rows=ROWS).findings
    assert (findings.problems, findings.unchecked, findings.checked["rows"]) == ([], [], ROWS)


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
