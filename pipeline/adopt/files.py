"""The files to adopt, found by globs, named below their folders, divided into splits; and what lies beside them.

A file's name in keys and messages is its path below the folder of its glob: `old/train-*.tfrecord` gives
`train-00000-of-00008.tfrecord`. The folder may move, and the keys stay.
"""

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from recordmill.pipeline.dataset.file_names import HERE
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Json
from recordmill.pipeline.dataset.paths import check_inner, check_name, is_name
from recordmill.pipeline.dataset.placement import SPLITS, split_bounds
from recordmill.pipeline.errors import DatasetError, ExitCode, UserError, listed
from recordmill.pipeline.json_values import WHOLE, parse_json
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.globs import escape, folder_prefix, is_glob, literal_prefix, without_slash
from recordmill.pipeline.sources.naming import only_split_of, read_label_map, read_names
from recordmill.pipeline.versions.build_folders import BUILDING_FOLDER
from recordmill.transforms.base.arrays import MOST_SIDES
from recordmill.transforms.base.bounds import FEATURES, NAMES

NAMED_SO = re.compile(r"\.tfrecord[^/]*\Z|\.(tfrec|records?)\Z")  # the path of a TFRecord file
BESIDE = ("features.json", "label_map.pbtxt", "labels.txt", "classes.txt", ".labels.txt")
"""Endings of the files beside the data that say what is in it."""
MAX_SHARE = 0.01  # as `rejects.max_share` of a build
FORMAT, READ = "adopt 1", "adopt 2"  # of what a pass over a file finds, and of what is made of it


class AdoptError(UserError):
    """Files that cannot be adopted; the message names one, the reason and the remedy."""


class ChangedError(AdoptError):
    """A file changed while it was read: the same command may succeed."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class Adoption:
    """Files to adopt, and the way they are read."""

    files: Mapping[str, Sequence[str]]  # globs by split; under "", by the files' names
    output: str
    features: Mapping[str, Any] | None = None
    """The features in a spec's words, or TensorFlow's parsing options by the records' names; None: they are found."""
    label: str | None = None  # the feature to predict; None: it is found
    key: str | None = None  # the records' feature with the key; None: a key is `file:record`
    splits: Mapping[str, float] = field(default_factory=dict)
    """Shares by which the keys' hashes divide the files; empty: files are whole."""
    name: str | None = None  # the dataset's name; None: of the output's last part
    max_share: float = MAX_SHARE  # of the records that may be left out

    def __post_init__(self) -> None:
        for split in self.splits:
            check_name("split", split)
        if self.splits and any(self.files):
            raise AdoptError(f"{listed(self.splits)} divide files of {listed(self.files)}: give one or the other")
        try:
            split_bounds(self.splits or {"train": 1})
        except ValueError as error:
            raise AdoptError(str(error)) from None

    @property
    def options(self) -> dict[str, Any]:
        """All that decides the version, besides the files."""
        features = None if self.features is None else {name: repr(each) for name, each in self.features.items()}
        others = {"label": self.label, "key": self.key, "splits": dict(self.splits), "name": self.dataset}
        return {"format": READ, "features": features, **others}

    @property
    def dataset(self) -> str:
        """The dataset's name. Raises: AdoptError: the output's last part is no name."""
        name = self.name or os.path.basename(self.output.rstrip("/")).replace("-", "_").replace(".", "_")
        if not is_name(name):
            raise AdoptError(f"{self.output} ends with no name of a dataset: give one, by --name or name=")
        return name


class Found(NamedTuple):
    """A file to adopt."""

    split: str
    root: str  # its folder, absolute or a URL, or relative to the dataset's folder if it lies inside
    name: str  # its path below the root
    info: FileInfo

    @property
    def sighting(self) -> tuple[str, str, int, str]:
        """The file's place, its size, and a sign of unchanged content."""
        return self.root, self.name, self.info.bytes, self.info.seen


def find(files: Files, given: Mapping[str, Sequence[str]], output: str) -> list[Found]:
    """Lists the files that globs match, by split; under the split "" files have that of their names, else `train`.

    Raises: AdoptError: a glob matches no file, a file is matched twice, or two have one name. OSError.
    """
    found = [each for split, globs in given.items() for glob in globs for each in _matched(files, split, glob, output)]
    of_path, of_name = dict[str, Found](), dict[str, Found]()
    for each in found:
        if each.info.path in of_path:
            raise AdoptError(f"{each.info.path} is given twice: give each file for one split, once")
        if each.name in of_name:
            both = f"{of_name[each.name].info.path} and {each.info.path}"
            raise AdoptError(f"{both} have one name in keys: give one quoted glob from the folder above both")
        of_path[each.info.path] = of_name[each.name] = each
        if each.root.split("/")[0] in (VERSIONS_FOLDER, BUILDING_FOLDER):
            raise AdoptError(f"{each.info.path} is a file of the dataset itself, which a prune removes: give others")
    named = [only_split_of(each.name) for each in found]
    is_named = None not in named
    splits = [each.split or (is_named and split) or "train" for each, split in zip(found, named, strict=True)]
    placed = [each._replace(split=split) for each, split in zip(found, splits, strict=True)]
    order = [*given] if "" not in given else [*dict.fromkeys(SPLITS.values())]
    return sorted(placed, key=lambda each: order.index(each.split))


def _matched(files: Files, split: str, pattern: str, output: str) -> list[Found]:
    if split:
        check_name("split", split)
    path = pattern if "://" in pattern else os.path.abspath(pattern)
    if is_folder := files.is_folder(path):
        path = f"{escape(without_slash(path))}/*"
        matched = [file for file in files.match(path) if NAMED_SO.search(file.path)]
    else:
        matched = list(files.match(escape(path) if os.path.isfile(path) else path))
    if not matched:
        what = "holds no file with the ending of TFRecords" if is_folder else "matches no file"
        raise AdoptError(f"{pattern} {what}: give TFRecord files, or a quoted glob of them")
    parent = posixpath.dirname(literal_prefix(path) if "://" in path else path)
    folder = without_slash(folder_prefix(path) if is_glob(path) and not os.path.isfile(path) else parent)
    found = list[Found]()
    for file in matched:
        at, real = folder, file.path if "://" in file.path else os.path.realpath(file.path)
        if "://" not in real and not real.startswith(os.path.join(os.path.realpath(folder), "")):
            at, file = os.path.dirname(real), file._replace(path=real)  # a link leads out, and readers follow none
        if "://" in at or "://" in output:
            root = (at[len(output) + 1 :] or HERE) if at == output or at.startswith(f"{output}/") else at
        else:
            root, own = os.path.realpath(at), os.path.realpath(output)
            if root == own or root.startswith(f"{own}{os.sep}"):  # a copy of both is the same dataset
                root = os.path.relpath(root, own)
        try:
            found.append(Found(split, root, check_inner(file.path[len(at) :].lstrip("/")), file))
        except DatasetError:
            what = "has characters that no dataset names: rename or link the file"
            raise AdoptError(f"{cut(repr(file.path))} {what}") from None
    return found


def beside(files: Files, found: Sequence[Found]) -> dict[str, FileInfo]:
    """Lists the small files beside the data that say what is in it, by name."""
    folders = dict.fromkeys(posixpath.dirname(each.info.path) for each in found)
    listed = (file for folder in folders for file in files.match(f"{escape(folder)}/*"))
    named = {posixpath.basename(file.path): file for file in listed if 0 < file.bytes <= 16 << 20}  # 16 MiB
    return {name: file for name, file in sorted(named.items()) if name.endswith(BESIDE)}


Names = dict[int, str] | list[str]
Sides = tuple[int | None, ...]  # None: of any length


@dataclass(frozen=True)
class Said:
    """A feature in `features.json`."""

    kind: str  # `image`, `classLabel`, `boundingBox`, `tensor`, `text`, …
    shape: Sides  # of a record's values
    dtype: str
    encoding: str
    names: Names | None = None  # the names of classes
    sides: Sides = ()  # an image's height, width and channels


def said_of(beside: Mapping[str, bytes]) -> dict[str, Said]:
    """Reads `features.json`, by the records' features; empty without it, or if it is broken."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, DatasetError):
        whole = parse_json(beside["features.json"])["featuresDict"]
        said = dict(islice(_leaves({"featuresDict": whole}, "", (), beside), FEATURES.most + 1))
        return said if len(said) <= FEATURES.most else {}
    return {}


def names_of(beside: Mapping[str, bytes]) -> Names | None:
    """Returns the class names of `label_map.pbtxt`, `labels.txt` or `classes.txt`; None without one."""
    for name, data in beside.items():
        if _holds_names(name):
            with suppress(ValueError, RecursionError):
                text = data.decode("utf-8-sig")
                return read_label_map(text) if name.endswith(".pbtxt") else read_names(text, is_json=False)
    return None


def unread(beside: Mapping[str, bytes]) -> Iterator[str]:
    """Yields files that were to say something, and do not."""
    for name, data in beside.items():
        has_names = _holds_names(name) and names_of({name: data}) is None
        if has_names or (name == "features.json" and not said_of(beside)):
            yield name


def _holds_names(file: str) -> bool:
    return file.endswith(".pbtxt") or file in ("labels.txt", "classes.txt")


def _leaves(feature: Json, name: str, outer: Sides, beside: Mapping[str, bytes]) -> Iterator[tuple[str, Said]]:
    """Yields what is inside a feature by names in records; `outer` are the sides of sequences around it."""
    if "featuresDict" in feature:
        for inside, each in feature["featuresDict"]["features"].items():
            yield from _leaves(each, f"{name}/{inside}" if name else inside, outer, beside)
    elif "sequence" in feature:
        length = int(feature["sequence"].get("length", -1))
        yield from _leaves(feature["sequence"]["feature"], name, (*outer, length if length >= 0 else None), beside)
    else:
        kind = next((each for each in feature if isinstance(feature[each], dict)), "")
        options = feature.get(kind, {})
        sides = [int(side) for side in options.get("shape", {}).get("dimensions", ())]
        if len(sides) > MOST_SIDES or not all(side in WHOLE for side in sides):
            raise ValueError("no shape")
        inner = tuple(None if side < 0 else side for side in sides)
        names: Names | None = None
        if kind == "classLabel":
            lines = beside.get(f"{name.replace('/', '-')}.labels.txt", beside.get(f"{name}.labels.txt", b"")).decode()
            classes = len(names := lines.splitlines()) or int(options.get("numClasses", 0))
            if classes > NAMES.most:
                raise ValueError(NAMES.beyond(classes))
            names = names or list(map(str, range(classes)))
        shape = outer if kind == "image" else (*outer, *inner)
        sizes = inner if kind == "image" else ()
        yield name, Said(kind, shape, options.get("dtype", ""), options.get("encoding", "none").lower(), names, sizes)
