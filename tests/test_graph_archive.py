"""The transform graph, sent from the driver to its workers."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from recordmill.pipeline.build.context.graph import GRAPH_FOLDERS, pack_graph, unpack_graph
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.engines import transform_graph

FILE = Path("assets", "label.vocabulary.txt")
THREADS = 8


def packed(folder: Path) -> tuple[LocalStore, str]:
    for name in GRAPH_FOLDERS:
        (folder / "export" / name / FILE.parent).mkdir(parents=True)
        (folder / "export" / name / FILE).write_text(f"{name}\n")
    (folder / "work").mkdir()
    workspace = LocalStore(str(folder / "work"))
    return workspace, pack_graph(workspace, str(folder / "export"))


def test_every_file_comes_back(tmp_path: Path) -> None:
    workspace, name = packed(tmp_path)
    assert workspace.sizes("analysis") == {name: (tmp_path / "work" / name).stat().st_size}
    unpacked = Path(unpack_graph(workspace, name))
    assert {entry: (unpacked / entry / FILE).read_text() for entry in GRAPH_FOLDERS} == {
        entry: f"{entry}\n" for entry in GRAPH_FOLDERS
    }


def test_threads_that_unpack_at_once_share_one_folder_that_stays(tmp_path: Path) -> None:
    workspace, name = packed(tmp_path)
    together = Barrier(THREADS)

    def unpack(_: int) -> str:
        together.wait()
        return unpack_graph(workspace, name)

    with ThreadPoolExecutor(THREADS) as threads:
        folders = set(threads.map(unpack, range(THREADS)))
    (folder,) = folders
    assert (Path(folder) / GRAPH_FOLDERS[0] / FILE).is_file()


def test_threads_that_load_the_graph_at_once_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = list[str]()

    def load(export: str) -> object:
        loaded.append(export)
        time.sleep(0.1)
        return object()

    monkeypatch.setattr(transform_graph, "TransformGraph", load)
    with ThreadPoolExecutor(4) as threads:
        graphs = list(threads.map(transform_graph.transform_graph, ["export"] * 4))
    assert (loaded, len(set(map(id, graphs)))) == (["export"], 1)
