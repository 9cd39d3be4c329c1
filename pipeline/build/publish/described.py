"""The stored features of a version, described for its manifest, TensorFlow Datasets and tf.Transform."""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata.schema_utils import schema_from_feature_spec

from recordmill.pipeline.build.analysis.tokenizers import tokenizer
from recordmill.pipeline.build.context.graph import input_specs
from recordmill.pipeline.build.results.results import Results
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.transforms.base.description import UNKNOWN, Description, Stored, tfds_stored
from recordmill.transforms.base.graph import DTYPES
from recordmill.transforms.base.stored import part_name, stored_features
from recordmill.transforms.engines.tensorflow_features import parse_spec, part_spec
from recordmill.transforms.texts.token_labels_spec import TokenLabels
from recordmill.transforms.values.values_stored import OwnDescription

ASSETS = "transform_fn/assets"
STORED = {dtype: name for name, dtype in DTYPES.items()}
Described = dict[str, Description]  # by feature


def describe_features(results: Results) -> Described:
    """Describes the features that a finished job stored."""
    spec = results.plan.spec
    described: Described = {}
    for name, feature in spec.features.items():
        owner = feature.owner(name)
        statistics = {"vocabulary": f"{ASSETS}/{vocabulary_name(owner)}", "is_label": name == spec.label}
        statistics |= results.statistics.get(owner, {})
        if isinstance(feature, TokenLabels):
            statistics["max_length"] = getattr(spec.features[feature.text], "most_ids", None)
        if name in results.context.models:
            statistics |= tokenizer(results.context, owner).statistics(owner)
        described[name] = feature.describe(statistics)
    return with_own_features(results.export, described) if spec.preprocessing else described


def with_own_features(export: str, built_in: Described) -> Described:
    """Describes the features that a graph stores: the spec's, if stored in its types, and all others."""
    stored, kept = tft.TFTransformOutput(export).transformed_feature_spec(), Described()
    for name, description in built_in.items():
        if all(_form(stored.get(part)) == _form(spec) for part, spec in parse_spec({name: description}).items()):
            kept[name] = description
    known = stored_features(kept)
    for name, spec in ((name, spec) for name, spec in stored.items() if name not in known):
        fixed = isinstance(spec, tf.io.FixedLenFeature)
        kept[name] = OwnDescription(stored=STORED[spec.dtype], shape=tuple(spec.shape) if fixed else None)
    return kept


def _form(spec: Any) -> tuple[Any, ...]:
    """Returns a spec's type and shape, without TensorFlow's names for the parts of ragged values."""
    return (type(spec), getattr(spec, "dtype", None), list(getattr(spec, "shape", None) or []))


def tfds_files(
    features: Mapping[str, Description], vocabularies: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, bytes]]:
    """Yields the files of TensorFlow Datasets: `features.json` and labels."""
    parts = {name: tfds_stored(each) for name, each in stored_features(features, with_key=True).items()}
    parts |= {name: description.tfds() for name, description in features.items()}
    kind = "tensorflow_datasets.core.features.features_dict.FeaturesDict"
    described = {"pythonClassName": kind, "featuresDict": {"features": parts}}
    yield "features.json", (json.dumps(described, indent=2) + "\n").encode()
    for feature, description in features.items():
        if "classLabel" in description.tfds() and description.ids:
            names = [UNKNOWN] * description.ids.first + [*vocabularies[feature]]
            yield f"{feature}.labels.txt", ("\n".join(names) + "\n").encode()


def id_counts(features: Mapping[str, Description]) -> Iterator[tuple[str, int]]:
    """Yields the number of ids, from 0, of each stored part with a table of ids, by its stored name."""
    for name, description in features.items():
        ids = description.ids.size if description.ids and description.ids.ignored is None else None
        sizes = {"": getattr(description, "buckets", ids), "missing": 2}
        for part, stored in description.parts.items():
            if stored.dtype == "int64" and (count := sizes.get(part)):
                yield part_name(name, part), count


def tft_files(results: Results, features: Mapping[str, Description]) -> Iterator[tuple[str, bytes]]:
    """Yields the schemas and assets that `tft.TFTransformOutput` reads; the graph's schema splits ragged tensors."""
    made = tft.TFTransformOutput(results.export)
    domains, parsed = made.transformed_domains(), parse_spec(features)
    for name, count in id_counts(features):
        domains[name] = schema_pb2.IntDomain(min=0, max=count - 1, is_categorical=True)
    schema = schema_from_feature_spec(parsed, domains)
    schema.annotation.CopyFrom(made.transformed_metadata.schema.annotation)
    inputs = input_specs(results.context).items()
    raw = {name: part_spec(Stored(STORED[each.dtype], None if len(each.shape) > 1 else ())) for name, each in inputs}
    for place, each in {"transformed_metadata": schema, "metadata": schema_from_feature_spec(raw)}.items():
        yield f"{place}/schema.pbtxt", text_format.MessageToString(each).encode("ascii")
    files = {name: each.ids.file for name, each in features.items() if each.ids and each.ids.file}
    files |= {posixpath.basename(file): file for file in files.values()}
    assets = json.dumps({name: posixpath.relpath(file, ASSETS) for name, file in files.items()})
    yield "transformed_metadata/asset_map", assets.encode("ascii")
