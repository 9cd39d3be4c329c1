"""Makes, loads and exports each transform graph once a test process: builds of one spec and the same rows share it.

A build of a few rows spends most of its time there. A graph with the user's own function is made anew.
"""

import hashlib
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from recordmill.pipeline.build import make_version
from recordmill.pipeline.build.analysis import graph as analysis
from recordmill.pipeline.build.context import graph
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.worker import batch
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.versions.stores.base import Store
from recordmill.transforms.engines import transform_graph
from recordmill.transforms.engines.transform_graph import Preprocessing
from tests.constants import constants

GRAPHS = 64  # in memory at once


class _Graphs:
    """The graphs of a process, each by all that it follows from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._make, self._export = analysis.make_graph, make_version.export_serving
        self._archives = dict[bytes, bytes]()
        self._unpacked = dict[bytes, Any]()
        self._unpack = graph._unpack.__wrapped__

    def make(self, context: PlannedBuild, preprocessing: Preprocessing) -> str:
        if preprocessing.own is not None:
            return self._make(context, preprocessing)
        key = _digest(_made_of(preprocessing), graph.input_specs(context))
        if key in self._archives:
            name = f"{attempt_name('analysis/export')}.tar"
            context.workspace.write(name, self._archives[key])
            return name
        name = self._make(context, preprocessing)
        self._archives[key] = context.workspace.read(name)
        return name

    def unpack(self, workspace: Store, name: str) -> Any:
        key = _digest(workspace.read(name))
        if key not in self._unpacked:
            self._unpacked[key] = self._unpack(workspace, name)
        return self._unpacked[key]

    def close(self) -> None:
        """Removes the unpacked graphs' folders: not while Python ends."""
        self._unpacked.clear()

    def export(self, *arguments: Any) -> None:
        """Copies the serving model of these arguments; the last is its folder."""
        *given, folder = arguments
        made = self._folder / _digest(given).hex()
        if not made.exists():
            self._export(*given, str(made))
        shutil.copytree(made, folder, dirs_exist_ok=True)


def _made_of(preprocessing: Preprocessing) -> Any:
    """Returns options, words and used statistics; vocabularies are in a folder named by their content."""
    words = {name: Path(path).parts[-2:] for name, path in preprocessing.vocabularies.items()}
    used, options = dict[str, dict[str, Any]](), dict[str, str]()
    for name, feature in preprocessing.features.items():
        found = preprocessing.statistics.get(name, {})
        used[name] = {key: found[key] for key in feature.used_statistics if key in found}
        options[name] = feature.model_dump_json(exclude={"column"})
    return options, preprocessing.learned, words, used


def _digest(*given: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(given)).digest()


@contextmanager
def graphs_once() -> Iterator[None]:
    """Lets this process make each graph once."""
    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        once = _Graphs(Path(folder))
        # Not the class itself, which a test may replace.
        loaded = lru_cache(maxsize=GRAPHS)(lambda export: transform_graph.TransformGraph(export))
        traced = lru_cache(maxsize=GRAPHS)(batch._traced.__wrapped__)
        with (
            constants(analysis, make_graph=once.make),
            constants(graph, _unpack=once.unpack),
            constants(transform_graph, _loaded=loaded),
            constants(batch, _traced=traced),
            constants(make_version, export_serving=once.export),
        ):
            yield
            once.close()
