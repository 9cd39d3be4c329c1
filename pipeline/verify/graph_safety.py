"""Checks that a version's graph may be loaded: its files have the manifest's digests, its operations only compute.

A SavedModel is a program. Its digest shows that it is the published one; the list of allowed operations limits what it
could do even if somebody had published another. Both are checked on the bytes, before TensorFlow loads them.

>>> check_graph(files, manifest, "serving").problems  # doctest: +SKIP
[]
>>> tf.saved_model.load(serving_model("out/emoji"))  # doctest: +SKIP
"""

from pathlib import Path

from recordmill.pipeline.dataset.manifest import DatasetError, Manifest
from recordmill.pipeline.graphs import MODEL_FILE, Checked, UnsafeGraphError, check_model
from recordmill.pipeline.reader.dataset import open_dataset
from recordmill.pipeline.reader.remote_path import RemotePath
from recordmill.pipeline.reader.version_files import VersionFiles
from recordmill.pipeline.verify.report import Findings
from recordmill.pipeline.verify.version_files import check_file

GRAPHS = ("transform_fn", "serving")


def check_graph(files: VersionFiles, manifest: Manifest, graph: str) -> Findings:
    """Checks the files and the operations of a graph, `transform_fn` or `serving`."""
    findings, folder = Findings(), f"{graph}/"
    listed = {path: entry for path, entry in manifest.files.items() if path.startswith(folder)}
    findings.merge(*(check_file(files, path, entry["bytes"], entry["sha256"]) for path, entry in listed.items()))
    for path in files.listing():
        if path.startswith(f"{folder}saved_model.") and path != folder + MODEL_FILE:
            findings.add(path, "TensorFlow might load it instead")
        elif path.startswith(folder) and manifest.files and path not in listed:
            findings.add(path, "the manifest lists no such file")
    findings.merge(check_operations(files, graph))
    return findings


def check_operations(files: VersionFiles, graph: str) -> Findings:
    """Checks a graph's operations, and that the files it lists for its tables are its own."""
    findings, path = Findings(), f"{graph}/{MODEL_FILE}"
    try:
        checked = check_model(files.read(path))
    except DatasetError as error:
        checked = Checked((str(error),))
    for problem in checked.problems:
        findings.add(path, problem)
    if checked.operations:
        findings.checked.update(operations=checked.operations)
    return findings


def refuse(findings: Findings) -> None:
    """Raises: UnsafeGraphError if there is any problem."""
    if findings.problems:
        more = findings.counts.total() - 1
        others = f", and {more} more problem{'s' * (more > 1)}" if more else ""
        raise UnsafeGraphError(
            f"the graph is not loaded: {findings.problems[0]}{others}: copy the version again, or build again"
        )


def serving_model(path: str | Path, version: str | None = None) -> str:
    """Gives the folder of a dataset's serving model, for `tf.saved_model.load`, after checking that it may be loaded.

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
