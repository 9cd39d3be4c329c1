"""tf.Transform's export, kept in the workspace, where workers and a later attempt find it."""

import itertools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_transform.tf_metadata import metadata_io

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph_archive import pack_graph
from recordmill.pipeline.build.context.progress import Progress
from recordmill.pipeline.build.context.steps import ANALYSIS
from recordmill.pipeline.build.context.workspace import read_report, write_report

ANALYZED = "reports/analyzed"
"""The report of the user's own analyzers: the export's name."""


def keep_export(made: str, planned: PlannedBuild, temp: str) -> str:
    """Keeps the export that lies in a local folder; returns its name. `temp` is where the graph's files were made."""
    _forget_folder(Path(made, "transform_fn"), temp)
    return pack_graph(planned.workspace, made)


def keep_analyzed(saved_model: str, metadata: object, planned: PlannedBuild, temp: str) -> None:
    """Keeps the export of the user's own analyzers, in a worker, and reports it.

    `tft_beam.WriteTransformFn` would fail when a runner repeats it.
    """
    with tempfile.TemporaryDirectory(prefix="recordmill-") as made:
        _download(saved_model, os.path.join(made, "transform_fn"))
        metadata_io.write_metadata(metadata, os.path.join(made, "transformed_metadata"))
        write_report(planned.workspace, ANALYZED, {"export": keep_export(made, planned, temp)})


def _download(folder: str, into: str) -> None:
    """Copies a folder, local or at a URL that TensorFlow opens, into a new local one."""
    for parent, _, names in tf.io.gfile.walk(folder):
        local = os.path.join(into, parent[len(folder) :].strip("/"))
        os.makedirs(local)
        for name in names:
            tf.io.gfile.copy(f"{parent.rstrip('/')}/{name}", os.path.join(local, name))


def report_analysis(planned: PlannedBuild, export: str, found: Mapping[str, Any]) -> None:
    """Reports a finished analysis: the export, what was found (`rows`, `statistics`, `drift`), the analyzed columns."""
    report = {"export": export, "analyzed": sorted(planned.analyzed), **found}
    write_report(planned.workspace, f"reports/{ANALYSIS}", report)
    Progress(planned.progress, ANALYSIS).add(analyzed=1)


def analyzed_columns(planned: PlannedBuild) -> frozenset[str]:
    """Returns the columns that a finished analysis read, those of the user's own analyzers too."""
    report = read_report(planned.workspace, f"reports/{ANALYSIS}")
    assert report is not None  # noqa: S101 - the attempt keeps the export that it names
    return frozenset(report["analyzed"])


def _forget_folder(saved_model: Path, folder: str) -> None:
    """Takes a folder out of a SavedModel: TensorFlow names a table by its file's absolute path."""
    path = saved_model / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in (meta.graph_def for meta in model.meta_graphs):
        for node in itertools.chain(graph.node, *(function.node_def for function in graph.library.function)):
            if "shared_name" in node.attr:
                node.attr["shared_name"].s = node.attr["shared_name"].s.replace(folder.encode() + b"/", b"")
    path.write_bytes(model.SerializeToString(deterministic=True))
    (saved_model / "fingerprint.pb").unlink(missing_ok=True)  # optional, and that of the earlier bytes
