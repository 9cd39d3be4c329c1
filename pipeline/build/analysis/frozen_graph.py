"""The transform graph of an earlier version, as a build takes it over: checked, and packed for the workers."""

import os
import tempfile

from recordmill.pipeline.build.analysis.tokenizer_models import FOLDER, SUFFIXES
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph_archive import GRAPH_FOLDERS, pack_graph
from recordmill.pipeline.build.frozen import LiveAnalysis
from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.graphs import MODEL_FILE, UnsafeGraphError, check_model


def frozen_models(planned: PlannedBuild, live: LiveAnalysis) -> dict[str, bytes]:
    """Returns the tokenizers that the version trained, by the feature that each is named after.

    Raises:
        OutputError: one is not what the version's manifest says.
    """
    return {owner: live.read(model_file(planned, owner)) for owner in dict.fromkeys(planned.trained().values())}


def model_file(planned: PlannedBuild, owner: str) -> str:
    """Returns the path in a version of the tokenizer that is named after this feature."""
    return f"{FOLDER}/{owner}.{SUFFIXES[planned.texts()[owner].tokenizer]}"


def keep_graph(planned: PlannedBuild, live: LiveAnalysis) -> str:
    """Writes the graph of the version into the workspace; returns the archive's name.

    Raises:
        OutputError: a file is not what the version's manifest says.
        UnsafeGraphError: the graph could do more than compute; the version may be somebody else's.
    """
    with tempfile.TemporaryDirectory(dir=planned.scratch) as folder:
        for name in GRAPH_FOLDERS:
            os.mkdir(os.path.join(folder, name))
        for file in live.files:
            if file.split("/")[0] in GRAPH_FOLDERS:
                path_within(folder, file).write_bytes(_safe(file, live.read(file)))
        return pack_graph(planned.workspace, folder)


def _safe(file: str, data: bytes) -> bytes:
    """Returns a file of the graph. Raises: UnsafeGraphError: it is a program that TensorFlow should not load."""
    name = file.rpartition("/")[2]
    if name.startswith("saved_model."):
        problems = check_model(data).problems if name == MODEL_FILE else ("TensorFlow might load it instead",)
        for problem in problems:
            raise UnsafeGraphError(
                f"the live version's graph is not taken over: {file}: {problem}; build once without `analysis: frozen`"
            )
    return data
