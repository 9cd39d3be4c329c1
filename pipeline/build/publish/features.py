"""Describes the features that a job stored, for the manifest, TensorFlow Datasets and tf.Transform.

They are those of the spec, and what a user's `preprocessing` function stores.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata.schema_utils import schema_from_feature_spec

from recordmill.pipeline.build.analysis.tokenizers import tokenizer
from recordmill.pipeline.build.context.graph import input_specs
from recordmill.pipeline.build.results.results import Results
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.paths import path_within
from recordmill.transforms.contract.kinds.base import UNKNOWN, Description, Stored, tfds_stored
from recordmill.transforms.contract.kinds.category import CategoryDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription
from recordmill.transforms.contract.kinds.text import vocabulary_owner
from recordmill.transforms.contract.stored import KEY, part_name, stored_features
from recordmill.transforms.tensorflow.features import parse_spec, part_spec

ASSETS = "transform_fn/assets"
STORED: Mapping[tf.DType, Literal["bytes", "int64", "float32"]] = {
    tf.string: "bytes",
    tf.int64: "int64",
    tf.float32: "float32",
}
Described = dict[str, Description]
"""Descriptions by feature."""


def describe_features(results: Results) -> Described:
    """Describes the features that a finished job stored."""
    spec = results.plan.spec
    described: Described = {}
    for name, feature in spec.features.items():
        owner = vocabulary_owner(name, feature.options())
        statistics = {"vocabulary": f"{ASSETS}/{vocabulary_name(owner)}", "is_label": name == spec.label}
        statistics |= results.statistics.get(owner, {})
        if name in results.context.models:
            statistics |= tokenizer(results.context, owner).statistics(owner)
        described[name] = feature.describe(statistics)
    return with_own_features(results.export, described) if spec.preprocessing else described


def with_own_features(export: str, built_in: Described) -> Described:
    """Describes the features that a graph stores: the spec's, if stored in its types, and all others."""
    stored = tft.TFTransformOutput(export).transformed_feature_spec()
    kept = {name: each for name, each in built_in.items() if _is_stored(name, each, stored)}
    known = stored_features(kept)
    return kept | {name: _own(spec) for name, spec in stored.items() if name not in known}


def _is_stored(name: str, description: Description, stored: Mapping[str, Any]) -> bool:
    return all(_form(stored.get(part)) == _form(spec) for part, spec in parse_spec({name: description}).items())


def _form(spec: Any) -> tuple[Any, ...]:
    """A spec's type and shape; how TensorFlow names the parts of ragged values says nothing."""
    return (type(spec), getattr(spec, "dtype", None), list(getattr(spec, "shape", None) or []))


def _own(spec: Any) -> OwnDescription:
    fixed = isinstance(spec, tf.io.FixedLenFeature)
    return OwnDescription(stored=STORED[spec.dtype], shape=tuple(spec.shape) if fixed else None)


def write_tfds_files(folder: str, features: Mapping[str, Description], vocabularies: Mapping[str, list[str]]) -> None:
    """Writes the files."""
    into, parts = Path(folder), dict[str, Any]()
    for name, description in features.items():
        parts |= {part_name(name, part): tfds_stored(stored) for part, stored in description.parts().items()}
        parts[name] = description.tfds()
    described = {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {"features": {**parts, KEY: tfds_stored(Stored("bytes"))}},
    }
    (into / "features.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    for feature, description in features.items():
        if "classLabel" in description.tfds() and isinstance(description, CategoryDescription):
            names = [UNKNOWN] * (description.first_id or 0) + vocabularies[feature]
            path_within(into, f"{feature}.labels.txt").write_text("\n".join(names) + "\n", encoding="utf-8")


def write_tft_files(results: Results, folder: str, features: Mapping[str, Description]) -> None:
    """Writes what `tft.TFTransformOutput` reads beside the graph: both schemas, and vocabularies by name.

    The graph's own schema names parts of ragged tensors, where records hold lists.
    """
    made = tft.TFTransformOutput(results.export)
    domains = made.transformed_domains() | dict(_domains(features))
    stored = schema_from_feature_spec(parse_spec(features), domains)
    stored.annotation.CopyFrom(made.transformed_metadata.schema.annotation)
    inputs = input_specs(results.context).items()
    raw = {name: part_spec(Stored(STORED[spec.dtype], None if len(spec.shape) > 1 else ())) for name, spec in inputs}
    for place, schema in {"transformed_metadata": stored, "metadata": schema_from_feature_spec(raw)}.items():
        text = text_format.MessageToString(schema)
        path_within(Path(folder), f"{place}/schema.pbtxt").write_text(text, encoding="ascii")
    files = {name: str(getattr(each, "vocabulary", "")) for name, each in features.items()}
    assets = {name: file.removeprefix(f"{ASSETS}/") for name, file in files.items() if file.startswith(f"{ASSETS}/")}
    names = json.dumps(assets | {file: file for file in assets.values()})
    path_within(Path(folder), f"transformed_metadata/{tft.TFTransformOutput.ASSET_MAP}").write_text(names)


def _domains(features: Mapping[str, Description]) -> Iterator[tuple[str, schema_pb2.IntDomain]]:
    for name, description in features.items():
        ids = getattr(description, "buckets", None) or getattr(description, "vocabulary_size", 0)
        for part, count in {"": ids, "missing": 2}.items():
            if count and part in (parts := description.parts()) and parts[part].dtype == "int64":
                yield part_name(name, part), schema_pb2.IntDomain(min=0, max=count - 1, is_categorical=True)
