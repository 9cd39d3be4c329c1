"""The user's function extends stored features: the jobs before writing, messages about mistakes."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from PIL import Image

from recordmill import open_dataset
from recordmill.pipeline.build.analysis.graph import OwnPreprocessing, PreprocessingError
from recordmill.pipeline.build.attempt import attempts
from recordmill.pipeline.build.beam.jobs import learn
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.beam.steps import UnreachableError
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.plan.plan import make_plan, planned_build
from recordmill.pipeline.build.publish.described import with_own_features
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import load_spec
from recordmill.pipeline.verify.parity import with_parity
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.base.kinds import read_descriptions
from tests.messages import assert_names, raises
from tests.tables import write_jsonl

MODULE = """
import tensorflow as tf
import tensorflow_transform as tft
from beside import double


def preprocessing_fn(inputs, outputs):
    outputs["twice"] = double(inputs["n"])
    outputs["above"] = tf.cast(inputs["n"] - tft.min(inputs["n"]), tf.float32)
    outputs["letters"] = tf.strings.unicode_split(inputs["text"], "UTF-8")
    outputs["pair"] = tf.stack([inputs["n"], inputs["n"]], axis=1)
    outputs["square"] = tf.tile(inputs["n"][:, tf.newaxis, tf.newaxis], [1, 2, 2])
    outputs["weight"] = tf.where(inputs["kind"] == "a", 2.0, 1.0)  # of the label: not in `serving_default`
    outputs["replaced"] = tf.strings.upper(inputs["replaced"])
    outputs["mine"] = tft.compute_and_apply_vocabulary(inputs["text"], vocab_filename="my_words", num_oov_buckets=1)
    del outputs["text"]
    return outputs
"""
SPEC = """
name: own
source: {format: jsonl, path: rows.jsonl}
key: id
split_by: {stratify: kind}
features:
  n: {kind: number, normalize: none}
  text: {kind: text}
  replaced: {kind: category, column: text}
  kind: {kind: category}
preprocessing: own_module:preprocessing_fn
label: kind
"""
ROWS = [{"id": str(row), "n": row + 5.0, "text": "äb"[: 1 + row % 2], "kind": "abbb"[row % 4]} for row in range(200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_jsonl(folder / "rows.jsonl", ROWS)
    (folder / "own_module.py").write_text(MODULE)
    (folder / "beside.py").write_text("def double(n):\n    return 2 * n\n")
    (folder / "dataset.yaml").write_text(SPEC.replace("column: text}", "column: kind}"))
    build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"))  # in other processes: `test_same_bytes.py`
    return folder


@pytest.mark.slow
def test_what_the_function_returns_is_stored_and_read(folder: Path) -> None:
    dataset = open_dataset(folder / "out")
    assert set(dataset.features) == {*"n replaced kind twice above letters pair square weight mine".split()}
    smallest = float("inf")
    for features, _ in dataset.evaluation_input("train", batch_size=7).as_numpy():
        smallest = min(smallest, features["n"].min())
        np.testing.assert_array_equal(features["twice"], 2 * features["n"])
        np.testing.assert_array_equal(features["pair"], np.stack([features["n"]] * 2, 1))
        assert features["square"].shape == (len(features["n"]), 2, 2)
        assert set(features["replaced"]) <= {b"A", b"B"}
        assert {b"".join(row).decode() for row in features["letters"]} <= {"ä", "äb"}
    for features, _ in dataset.evaluation_input("test", batch_size=100).as_numpy():
        np.testing.assert_array_equal(features["above"], features["n"] - smallest)


@pytest.mark.slow
def test_tf_transform_reads_it_too_and_a_frozen_graph_describes_it_alike(folder: Path) -> None:
    (version,) = (folder / "out" / "versions").iterdir()
    output, features = tft.TFTransformOutput(str(version)), open_dataset(version).features
    files = list(map(str, version.glob("own-train.tfrecord-*")))
    records = [record.numpy() for record in tf.data.TFRecordDataset(files)]
    parsed = tf.io.parse_example(records, output.transformed_feature_spec())
    assert parsed.keys() == features.keys()
    rows = {row["id"]: row for row in ROWS}
    for number, record in enumerate(records):
        row = rows[tf.train.Example.FromString(record).features.feature["key"].bytes_list.value[0].decode()]
        assert parsed["square"][number].numpy().tolist() == [[row["n"]] * 2] * 2
        assert b"".join(parsed["letters"][number].numpy()).decode() == row["text"]
    assert set(output.vocabulary_by_name("my_words")) == {"ä".encode(), "äb".encode()}
    assert (output.vocabulary_size_by_name("my_words"), output.num_buckets_for_transformed_feature("mine")) == (2, 3)
    built_in = read_descriptions({name: features[name] for name in ("n", "kind")})
    assert {name: each.to_json() for name, each in with_own_features(str(version), built_in).items()} == features


@pytest.mark.slow
def test_serving_gives_it_too(folder: Path) -> None:
    (serving,) = (folder / "out" / "versions").glob("*/serving")
    served = tf.saved_model.load(str(serving)).signatures["serving_default"](
        n=tf.constant([7.5]), text=tf.constant(["ab"]), replaced=tf.constant(["b"])
    )
    assert served["twice"].numpy().tolist() == [15.0]
    assert "weight" not in served
    assert served["letters"].numpy().tolist() == [[b"a", b"b"]]


MAKE = "import tensorflow as tf\n\ndef f(inputs, outputs):\n    return outputs | "
MISTAKES = {
    MAKE + "{'m': 5}\n": ["mistake_0:f", "'m'", " int", "return a tensor"],
    MAKE + "{'m': tf.zeros([1], tf.float64)}\n": ["mistake_1:f", "'m'", "float64", "float32, int64 or string"],
    MAKE + "{'m': tf.constant(1)}\n": ["'m'", "int32"],
    MAKE + "{'m': tf.constant(1.0)}\n": ["'m'", "shape ()", "ragged"],
    MAKE + "{'key': tf.constant(['a'])}\n": ["'key'", "every record's own key"],
    MAKE + "{'my ü': tf.constant(['a'])}\n": ["'my ü'", "letters, digits and underscores"],
    "def f(inputs, outputs):\n    return None\n": ["mistake_6:f", "NoneType", "a dict of tensors"],
    "def f(inputs, outputs):\n    return {}\n": ["mistake_7:f", "no 'label'"],
    "def f(inputs, outputs):\n    return inputs['txt']\n": ["mistake_8.py, line 2", "KeyError: 'txt'"],
    "import sys\ndef f(inputs, outputs):\n    sys.exit(3)\n": ["mistake_9.py, line 3", "SystemExit: 3"],
    "def g(inputs, outputs):\n    return outputs\n": ["mistake_10", "no function `f`"],
    "import numpy\n\ndef f(inputs, outputs):\n    return outputs | {'m': numpy.ones(3)}\n": ["'m'", "a tensor"],
    MAKE + "{'m': tf.RaggedTensor.from_tensor([[1.0, 2.0]])}\n": ["'m'", "one length", "`to_tensor()`"],
    MAKE + "{'m_length': tf.constant([2])}\n": ["'m_length'", "for 'm'", "another name"],
    MAKE + "{'tags': outputs['tags'] + 1}\n": ["'tags'", "before or after the graph", "as it came"],
}


RAGGED = tf.ragged.constant([[1, 2]], tf.int64)


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_is_told(code: str, tmp_path: Path) -> None:
    name = f"mistake_{list(MISTAKES).index(code)}"
    (tmp_path / f"{name}.py").write_text(code)
    found = UserCode.of([f"{name}:f"], str(tmp_path))
    function = OwnPreprocessing(
        f"{name}:f", "label", found, LocalStore(str(tmp_path)), {"m_length": "m", "tags": "tags"}
    )
    with raises(UserError, *MISTAKES[code]):
        function({}, {"label": tf.constant(["a"]), "m": RAGGED, "tags": RAGGED})


@pytest.mark.slow
def test_an_operation_that_no_published_graph_has_ends_the_build(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "in_python.py").write_text(
        MAKE + "{'m': tf.ensure_shape(tf.numpy_function(abs, [inputs['n']], tf.float32), [None])}\n"
    )
    spec = SPEC.replace("own_module:preprocessing_fn", "in_python:f").replace("column: text}", "column: kind}")
    (tmp_path / "dataset.yaml").write_text(spec)
    with raises(UserError, "in_python:f", "'PyFunc'", "without Python") as caught:
        build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))
    assert "KeepExport" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["[:5]", "[:0]"])
def test_one_value_a_row(kept: str, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "fewer.py").write_text(MAKE + f"{{'m': tf.strings.split(inputs['text']){kept}}}\n")
    spec = SPEC.replace("own_module:preprocessing_fn", "fewer:f").replace("column: text}", "column: kind}")
    (tmp_path / "dataset.yaml").write_text(spec)
    with raises(UserError, "'m'", kept[2], "values", "rows", "one a row"):
        build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))


@pytest.mark.slow
def test_verify_tells_that_the_model_fails_for_rows(tmp_path: Path) -> None:
    for number in range(9):
        Image.new("L", (4, 4), number).save(tmp_path / f"{number}.png")
    (tmp_path / "cut_off.py").write_text(MAKE + "{'image': tf.strings.substr(outputs['image'], 0, 5)}\n")
    (tmp_path / "dataset.yaml").write_text(
        "{name: own, source: {format: image_folder, path: .}, preprocessing: 'cut_off:f', "
        "features: {image: {kind: image, size: 4}}}"
    )
    spec = load_spec(str(tmp_path / "dataset.yaml"))
    (problem,) = with_parity(verify(build(spec, str(tmp_path / "out")).folder), spec, rows=9).findings.problems
    assert_names(str(problem), "serving/saved_model.pb", "fails", "9 records")


SHIFTED = [
    ("replaced", "+ 5", ["0 to 2", "6 to 7"]),
    ("replaced", "- 5", ["0 to 2", "-4 to -3"]),
    ("text", "+ 50", ["0 to 3", "52 to 53"]),
    ("text", "- 50", ["0 to 3", "-48 to -47"]),
    ("kind", "- 1", ["0 to 1", "-1 to 0"]),
    ("n", "+ 9", ["0 to 1", "9 to 10"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "by", "facts"), SHIFTED)
def test_ids_that_a_feature_lacks_are_refused(name: str, by: str, facts: list[str], tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", ROWS[:12])
    module = f"shifted_{name}_{by[-2:].strip()}"
    (tmp_path / f"{module}.py").write_text(MAKE + f"{{'{name}': outputs['{name}'] {by}}}\n")
    spec = SPEC.replace("own_module:preprocessing_fn", f"{module}:f").replace("column: text}", "column: kind}")
    (tmp_path / "dataset.yaml").write_text(spec.replace("normalize: none", "boundaries: [9]"))
    with raises(UserError, f"'{name}'", *facts, "`preprocessing`", "new name"):
        build(load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out"))


def remote() -> Runner:
    return Runner(FnApiRunner(), PipelineOptions([], direct_running_mode="in_memory"), is_local=False)


def test_analyzers_on_a_cluster_need_a_folder_that_workers_reach(tmp_path: Path) -> None:
    (tmp_path / "own_temp.py").write_text(
        "import tensorflow_transform as tft\n\ndef f(inputs, outputs):\n"
        "    return outputs | {'above': inputs['n'] - tft.min(inputs['n'])}\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "dataset.yaml").write_text(
        "{name: o, source: {format: jsonl, path: rows.jsonl}, preprocessing: 'own_temp:f', "
        "features: {n: {kind: number, normalize: none}}}"
    )
    plan = make_plan(load_spec(tmp_path / "dataset.yaml"), LocalFiles())
    run = attempts.begin(str(tmp_path / "out"), str(tmp_path / "out"), plan.build_key, plan.pieces)
    planned = planned_build(plan, run.folder, LocalFiles(), inline=True, threads=1)
    with raises(PreprocessingError, "own_temp:f", "analyzers", "--temp", "gs://"):
        learn(planned, plan.chunks, remote())
    with raises(UnreachableError, "--temp s3://no/where", "TensorFlow"):
        learn(planned, plan.chunks, remote(), temp="s3://no/where")
    context = learn(planned, plan.chunks, remote(), temp=str(tmp_path / "temp"))
    assert context.export.startswith("analysis/")
    assert os.listdir(tmp_path / "temp") == []
    assert context.analyzed
    again = learn(planned, plan.chunks, remote(), export=context.export)
    assert again.analyzed == context.analyzed, "in an attempt that takes over the finished analysis"
