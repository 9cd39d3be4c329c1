"""Every function that writes, and every place on a disk that the code names: the audit of writes is held against both.

A new writer or place fails `test_written_places.py` until it is listed here, so that links are planted there too.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PRIMITIVES = {
    "os": set(
        "chmod chown fchmod fchown ftruncate link makedirs mkdir mkfifo mknod remove removedirs rename renames replace "
        "rmdir symlink truncate unlink utime".split()
    ),
    "shutil": set("copy copy2 copyfile copyfileobj copymode copystat copytree move rmtree unpack_archive".split()),
    "tempfile": set("mkdtemp mkstemp mktemp NamedTemporaryFile TemporaryDirectory TemporaryFile".split()),
    "tf.io.gfile": set("copy makedirs mkdir remove rename rmtree".split()),
    "pq": {"ParquetWriter", "write_table"},
}
"""Functions of modules that make, change or remove a file."""
METHODS = set(
    "chmod extract extractall hardlink_to mkdir rename rmdir save savez save_weights symlink_to tofile touch unlink "
    "write_bytes write_text".split()
)
"""Methods that do so: of paths, archives, images, arrays and models."""
OURS = {"path_within", "replacing", "write_atomically", "write_metadata"}
"""Functions that do so by whatever name they are imported."""
READING = {"os", "O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"}
"""The names in flags of an `os.open` that only reads."""


def writers(root: Path) -> dict[str, set[str]]:
    """Finds the functions that write in all modules of a package, by module."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        for function in _writers(ast.parse(path.read_text(encoding="utf-8")), ""):
            found.setdefault(path.relative_to(root.parent).with_suffix("").as_posix(), set()).add(function)
    return found


def _writers(node: ast.AST, function: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
        if _names_a_writer(child) or (isinstance(child, ast.Call) and _calls_a_writer(child)):
            yield function
        yield from _writers(child, ".".join(filter(None, (function, inner))))


def _names_a_writer(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in PRIMITIVES.get(ast.unparse(node.value), OURS)
    if isinstance(node, ast.ImportFrom):
        return any(name.name in PRIMITIVES.get(node.module or "", ()) for name in node.names)
    return isinstance(node, ast.Name) and node.id in OURS


def _calls_a_writer(call: ast.Call) -> bool:
    owner, _, name = ast.unparse(call.func).rpartition(".")
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if (owner, name) == ("os", "open"):
        return not set(re.findall(r"\w+", ast.unparse(given[1]))) <= READING
    if name in ("open", "GFile"):
        return any(re.search(r"'r?b?[wax+]b?\+?'", ast.unparse(each)) for each in given)
    if name == "replace":  # a path's takes one argument, a text's two
        return bool(owner) and len(call.args) == 1 and not call.keywords
    return bool(owner) and name in METHODS


WRITERS = {
    "pipeline/adopt/adopt": "_assemble adopt_files",
    "pipeline/adopt/assemble": "Assembly._split Assembly._write_rejects Assembly.assemble",
    "pipeline/adopt/scanned": "scan_file take_over",
    "pipeline/dataset/file_names": "remember",
    "pipeline/build/analysis/graph": "_keep_export keep_analyzed keep_graph make_preprocessing",
    "pipeline/build/attempt/attempts": "begin LocalPlace.__init__ LocalPlace.new_run LocalPlace.take_over Run.give_up",
    "pipeline/build/beam/jobs": "_make_graph",
    "pipeline/build/beam/runners": "PrivateGrpcServer.__init__",
    "pipeline/build/beam/steps": "answer_temp probe_temp",
    "pipeline/build/build": "_leased",
    "pipeline/build/context/graph": "_unpack pack_graph",
    "pipeline/build/images/transcode": "_png_of as_jpeg",
    "pipeline/build/journal": "write_metrics",
    "pipeline/build/make_version": "_Attempt._cause",
    "pipeline/build/publish/assemble": "assemble clear",
    "pipeline/build/runners/flink_cluster": "FlinkCluster.__init__ FlinkCluster.start JobServer.start",
    "pipeline/build/worker/packing": "ImageSpill._write",
    "pipeline/cli/inspect_commands": "_draw report",
    "pipeline/cli/screen": "quiet",
    "pipeline/cli/session": "BuildSession.__init__ BuildSession._fail",
    "pipeline/dataset/paths": "open_file path_within replacing write_atomically",
    "pipeline/dataset/tfrecord": "ShardWriter.__init__",
    "pipeline/export/export": "ParquetWriter.__init__ WebDatasetWriter.__init__ _turned export image_file",
    "pipeline/facts/sidecars": "with_sidecars",
    "pipeline/forget": "_Removal._assemble",
    "pipeline/forecast/rehearsal": "rehearse",
    "pipeline/init/starter": "write_spec",
    "pipeline/private_folder": "_TemporaryFiles.remove _new_folder _remove_dead",
    "pipeline/reader/block_cache": (
        "BlockCache._keep BlockCache._locked BlockCache._opened BlockCache._shrink BlockCache.cached BlockCache.drop "
        "BlockCache.fetch _check_own _mark _open"
    ),
    "pipeline/reader/keras_input": "TrainingCheckpoint._save",
    "pipeline/reader/notebook": "data_url",
    "pipeline/servable": "Servable.save",
    "pipeline/spec/model": "write_schema",
    "pipeline/verify/parity": "with_parity",
    "pipeline/versions/build_folders": "_remove_empty remove_run",
    "pipeline/versions/stores/bucket": "BucketStore._upload",
    "pipeline/versions/stores/gcs": "_ResumableUpload.__init__",
    "pipeline/versions/stores/local": (
        "LocalStore._within LocalStore.copy LocalStore.create LocalStore.delete LocalStore.locked LocalStore.remove "
        "LocalStore.reveal LocalStore.stage LocalStore.write LocalStore.write_if _delete _remove_empty _replace "
        "_restrict _try"
    ),
    "transforms/base/buffers": "new_file",
    "transforms/engines/transform_graph": "export_serving",
}
"""The functions that write, by module."""

NAMES = {
    "version": r"\d{8}T\d{6}Z-[0-9a-f]{8}",
    "file": r"[^/]+",
    "key": "[0-9a-f]{16}",
    "digest": "[0-9a-f]{64}",
    "note": "[0-9a-f]{32}",
    "id": "[0-9a-f]{12}",
    "any": ".+",
    "random": r"\w{8}",
    "weights": r"\d{9}-\d+\.weights\.h5",
}
"""The parts of a place that differ, as patterns; nobody can plant something at one of an `id`, or a `random` one."""
TEMPORARY = re.compile(r"\.[0-9a-f]{32}$")
"""The end of a temporary file's name (`paths.attempt_name`), which nobody can plant either."""
PLACES = {
    "out/.lock": "out/.lock",
    "out/LATEST": "out/LATEST",
    "out/history.jsonl": "out/history.jsonl",
    "out/forgotten.json": "out/forgotten.json",
    "out/.leases": "out/.leases",
    "out/.leases/build.json": "out/.leases/build.json",
    "out/.leases/{version}+{id}.json": "",
    "out/.removing": "out/.removing",
    "out/.removing/{any}": "",
    "out/.building": "out/.building",
    "out/.building/{key}": "",
    "out/.building/{key}/run-{id}": "",
    "out/.building/{key}/gone-{id}": "",
    "out/.building/{key}/{any}": "",
    "out/versions": "out/versions",
    "out/versions/{version}": "out/versions/20261121T120000Z-77d0a4b1",
    "out/versions/{version}/dataset.json": "out/versions/20261121T120000Z-77d0a4b1/dataset.json",
    "out/versions/{version}/croissant.json": "out/versions/20261121T120000Z-77d0a4b1/croissant.json",
    "out/versions/{version}/{any}": "out/versions/20261121T120000Z-77d0a4b1/small-train.tfrecord-00000-of-00004",
    "cwd/small-report.html": "cwd/small-report.html",
    "cwd/small-preview.png": "cwd/small-preview.png",
    "cwd/dataset.schema.json": "cwd/dataset.schema.json",
    "export/.{file}.{random}": "",
    "export/.{file}.{random}/{any}": "",
    "export/{file}": "",
    "export/{file}/{any}": "",
}
"""The places below the folders of a test that are written, each with an example at which something may be planted.

None has a place whose name is random, or a folder that the user names.
"""
CACHE = {
    "cache/recordmill": "",
    "cache/recordmill/recordmill-blocks": "cache/recordmill/recordmill-blocks",
    "cache/recordmill/recordmill-blocks/CACHEDIR.TAG": "cache/recordmill/recordmill-blocks/CACHEDIR.TAG",
    "cache/recordmill/recordmill-blocks/{digest}": "cache/recordmill/recordmill-blocks/{digest}",
    "cache/recordmill/recordmill-blocks/{digest}.part": "cache/recordmill/recordmill-blocks/{digest}.part",
}
"""The places that a reader of a bucket writes, as `PLACES`."""
ADOPTING = {
    "cache": "",
    "cache/recordmill": "",
    "cache/recordmill/adopted": "",
    "cache/recordmill/adopted/{note}.json": "",
}
"""The places that only an adoption writes, as `PLACES`."""
BUILDS = {
    "cwd/dataset.yaml": "cwd/dataset.yaml",
    "cwd/metrics.txt": "cwd/metrics.txt",
    "run/training.json": "run/training.json",
    "run/{weights}": "run/000000010-1.weights.h5",
}
"""The places that only builds and trainings write, as `PLACES`."""
EARLIER = tuple(
    f"{place}.new" for place in PLACES.values() if place.endswith((".json", ".jsonl", "LATEST")) and "out/" in place
)
"""Temporary names of earlier releases, which could be foreseen."""


def place_of(path: str) -> str | None:
    """Returns the first place of all tables that a written path matches; None if no place matches."""
    plain = TEMPORARY.sub("", path)
    for place in PLACES | CACHE | BUILDS | ADOPTING:
        pattern = re.sub(r"\\\{(\w+)\\\}", lambda name: NAMES[name[1]], re.escape(place))
        if re.fullmatch(pattern, plain):
            return place
    return None
