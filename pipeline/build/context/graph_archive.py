"""The transform graph as one file of the workspace: packed once, unpacked once by each process that needs it.

name = pack_graph(workspace, folder)        # `folder` has `transform_fn` and `transformed_metadata`
tft.TFTransformOutput(unpack_graph(workspace, name))
"""

import io
import os
import tarfile
import tempfile
import threading
from functools import lru_cache

from recordmill.pipeline.build.context.workspace import Workspace
from recordmill.pipeline.dataset.atomic_files import attempt_name

GRAPH_FOLDERS = ("transform_fn", "transformed_metadata")
_unpacking = threading.Lock()
"""Held while a graph is unpacked: of two threads' folders the cache would keep one, and the other would go."""


def pack_graph(workspace: Workspace, folder: str) -> str:
    """Writes the graph in a local folder as one archive; returns its name."""
    sink, name = io.BytesIO(), f"{attempt_name('analysis/export')}.tar"
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for entry in GRAPH_FOLDERS:
            archive.add(os.path.join(folder, entry), entry)
    workspace.write(name, sink.getvalue())
    return name


def unpack_graph(workspace: Workspace, name: str) -> str:
    """Returns a local folder with the archive's files, which stays until the process ends."""
    with _unpacking:
        return _unpack(workspace, name).name


@lru_cache(maxsize=4)
def _unpack(workspace: Workspace, name: str) -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="recordmill-graph-", ignore_cleanup_errors=True)
    with workspace.open(name) as file, tarfile.open(fileobj=file) as archive:
        # Set as an attribute: the argument `filter` is unknown to Python 3.11.2, which Debian 12 has.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder.name)  # noqa: S202 - written by this build's own driver
    return folder
