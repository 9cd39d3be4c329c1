"""The keys of a build: digests of everything that decides a byte of the result.

The spec, our version and the versions of the packages that do the work, the user's modules, and the inputs as they are
listed, with sizes and times of change. What the live version gives is added by `BuildPlan.build_key`.
"""

import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from recordmill.pipeline import VERSION
from recordmill.pipeline.build.inputs.input_table import Group
from recordmill.pipeline.build.inputs.span_sources import by_span, sources_of
from recordmill.pipeline.build.plan.spans import choose, sha256_of
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.options import UserRows
from recordmill.pipeline.sources.paths import planning
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import Spec

PACKAGES = (
    "apache-beam",
    "numpy",
    "pillow",
    "pyarrow",
    "sentencepiece",
    "tensorflow",
    "tensorflow-text",
    "tensorflow-transform",
)

NO_PART_OF_THE_KEY = {"rejects", "gate", "analysis", "about"}
"""Options left out of the source key: a build that a limit stopped goes on when the limit is raised; a graph that is
taken over has its digest in the build key; words about the data are no reason to build it again."""


def list_groups(spec: Spec, files: Files, only: Sequence[str] = ()) -> list[Group]:
    """Lists all files that a plan may use, without opening any; of some spans only theirs.

    Raises:
        SourceError: a source is not there. OSError: it cannot be listed.
    """
    sources = (each for span in only for each in sources_of(spec, span, files)) if only else by_span(spec, files)
    return [Group(each, each.reader.list_inputs(files, spec.columns())) for each in sources]


def listing_key(spec: Spec, files: Files) -> str:
    """The `source_key` of a plan that uses all listed files.

    Raises:
        UserError: a source, the user's code, or a file that the spec names, is not there. OSError: as `list_groups`.
    """
    parts = key_parts(spec, user_code(spec), digest_files(spec, files))
    if spec.has_spans:
        return sha256_of(parts | {"inputs": choose(spec, files, sha256_of(recipe_of(parts))).inputs_sha256})
    return sha256_of(parts | {"inputs": files_digest(group.files for group in list_groups(spec, files))})


def sighting_key(spec: Spec, files: Files) -> str:
    """Digests what `listing_key` does, and of local files what only this machine knows. Raises: as `listing_key`."""
    listed = files_digest((group.files for group in list_groups(spec, files)), attrgetter("seen"))
    return sha256_of(key_parts(spec, user_code(spec), digest_files(spec, files)) | {"seen": listed})


def user_code(spec: Spec) -> UserCode | None:
    """The user's modules beside the spec that it names; None if it names no function."""
    references = [name for source in spec.source if isinstance(source, UserRows) for name in source.references()]
    references += [spec.preprocessing] if spec.preprocessing else []
    return UserCode.of(references, spec.folder) if references else None


def package_versions() -> dict[str, str]:
    """The versions of Recordmill and of the packages that the bytes depend on."""
    return {"recordmill": VERSION} | {name: importlib.metadata.version(name) for name in PACKAGES}


def files_digest(inputs: Iterable[Iterable[FileInfo]], content: Callable[[FileInfo], str] = attrgetter("keyed")) -> str:
    """Digests the names and sizes of the files of each source, and what stands for their content."""
    digest = hashlib.sha256()
    for index, files in enumerate(inputs):
        for file in files:
            line = f"{index}\0{file.path}\0{file.bytes}\0{content(file)}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def digest_files(spec: Spec, files: Files) -> dict[str, str]:
    """Returns the SHA-256 of each file that features name. Raises: SourceError."""
    return {name: _file_digest(path, files) for name, path in spec.files().items()}


def _file_digest(path: str, files: Files) -> str:
    with planning(path), files.open(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def key_parts(spec: Spec, code: UserCode | None, files: Mapping[str, str]) -> dict[str, Any]:
    """Returns all that decides a byte of the result, with a place for the digest of the inputs."""
    parts: dict[str, Any] = {"spec": spec.model_dump(mode="json", exclude=NO_PART_OF_THE_KEY)}
    parts |= {"packages": package_versions(), "inputs": None}
    parts |= {"code": code.sha256} if code else {}
    return parts | ({"files": list(files.values())} if files else {})


def recipe_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts that decide the records of each span alike; its sources' options belong to its key."""
    return {**parts, "spec": {name: option for name, option in parts["spec"].items() if name != "source"}}
