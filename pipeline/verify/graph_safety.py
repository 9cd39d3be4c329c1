"""Whether a version's graph may be loaded: its files have the manifest's digests, and all its operations only compute.

A SavedModel is a program. A digest says that it is the one that was published, the list of operations what it could do
even if somebody had published another (`verify.graph_operations`). Both are checked from the bytes, before TensorFlow
loads it.

>>> check_graph(files, manifest, "serving").problems  # doctest: +SKIP
[]
>>> tf.saved_model.load(serving_model("out/emoji"))  # doctest: +SKIP
"""

from collections import Counter
from pathlib import Path

from recordmill.pipeline.dataset.manifest import DatasetError, Manifest
from recordmill.pipeline.dataset.safe_paths import check_inner
from recordmill.pipeline.reader.dataset import open_dataset
from recordmill.pipeline.reader.parsing.varints import Malformed
from recordmill.pipeline.reader.records.remote_path import RemotePath
from recordmill.pipeline.verify.files import VersionFiles, check_file
from recordmill.pipeline.verify.findings import Findings
from recordmill.pipeline.verify.graph_operations import ALLOWED, SAVING
from recordmill.pipeline.verify.saved_model import Node, SavedModel, read_saved_model

GRAPHS = ("transform_fn", "serving")
MODEL_FILE = "saved_model.pb"
SAVERS = "__inference__traced_"
"""What TensorFlow names the functions that save and restore variables."""


class UnsafeGraphError(DatasetError):
    """A graph is not what was published, or could do more than compute: it is not loaded."""


def check_graph(files: VersionFiles, manifest: Manifest, graph: str) -> Findings:
    """Checks the files and the operations of a graph, `transform_fn` or `serving`."""
    found = check_digests(files, manifest, graph)
    found.add(check_operations(files, graph))
    return found


def check_digests(files: VersionFiles, manifest: Manifest, graph: str) -> Findings:
    """Checks that a graph's folder holds the files that the manifest lists, and no others."""
    found, inside = Findings(), f"{graph}/"
    listed = {path: entry for path, entry in manifest.files.items() if path.startswith(inside)}
    for path, entry in listed.items():
        found.add(check_file(files, path, entry["bytes"], entry["sha256"]))
    for path in files.listing():
        other = path.rpartition("/")[2].startswith("saved_model.") and path != inside + MODEL_FILE
        if path.startswith(inside) and (other or (manifest.files and path not in listed)):
            found.tell(path, "TensorFlow might load it instead" if other else "the manifest lists no such file")
    return found


def check_operations(files: VersionFiles, graph: str) -> Findings:
    """Checks a graph's operations, and that the files it lists for its tables are its own."""
    found, path = Findings(), f"{graph}/{MODEL_FILE}"
    try:
        data = files.read(path)
        model = read_saved_model(data)
    except DatasetError as error:
        found.tell(path, str(error))
        return found
    except Malformed:
        found.tell(path, "the file is no SavedModel")
        return found
    savers = {name for name in _savers(model) if _only_saves(model, data, name)}
    foreign = Counter(node.op for node in model.nodes if not _may_run(node, savers))
    for op, count in sorted(foreign.items()):
        found.tell(path, f"the operation {op!r}, {count} times, is none of those that a published graph may hold")
    for asset in model.assets:
        try:
            check_inner(asset)
        except DatasetError as error:
            found.tell(path, f"a table's file: {error}")
    found.checked.update(operations=len(model.nodes))
    return found


def refuse(found: Findings) -> None:
    """Raises: UnsafeGraphError if anything was found."""
    if found.problems:
        more = sum(found.told.values()) - 1
        others = f", and {more} more problem{'s' * (more > 1)}" if more else ""
        raise UnsafeGraphError(
            f"the graph is not loaded: {found.problems[0]}{others}: copy the version again, or build again"
        )


def serving_model(path: str | Path, version: str | None = None) -> str:
    """Gives the folder of a dataset's serving model, for `tf.saved_model.load`, once it is sure that it may be loaded.

    Args:
        path: the dataset's folder, or a version's, on this machine.
        version: a version's name; by default the live one.

    Raises:
        UnsafeGraphError: it is not what the manifest says, or holds other operations than a published graph may.
        DatasetError: there is no such version, or it lies at a URL.
    """
    dataset = open_dataset(path, version)
    if isinstance(dataset.folder, RemotePath):
        raise DatasetError(f"{path} is a URL: copy the version here, so that what is checked is what is loaded")
    refuse(check_graph(VersionFiles(dataset.folder), dataset.manifest, "serving"))
    return str(dataset.folder / "serving")


def _may_run(node: Node, savers: set[str]) -> bool:
    return node.op in ALLOWED or (node.op in SAVING and node.function in savers)


def _savers(model: SavedModel) -> set[str]:
    return {node.function for node in model.nodes if node.op in SAVING and node.function is not None}


def _only_saves(model: SavedModel, data: bytes, function: str) -> bool:
    """Whether a function runs when somebody saves or restores the model, and at no other time.

    It is named twice: where it is defined, and by a node of the graph itself whose output nothing takes.
    """
    if not function.startswith(SAVERS) or data.count(function.encode()) != 2:
        return False
    callers = [node for node in model.nodes if function in node.calls]
    taken = {name for node in model.nodes if node.function is None for name in node.inputs} | model.fetched
    return len(callers) == 1 and callers[0].function is None and callers[0].name not in taken
