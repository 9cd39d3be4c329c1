"""The analysis that a build takes over from the live version: its transform graph, with all that the graph was made of.

`analysis: frozen` keeps the graph from version to version, so that every id and every normalized number means what it
meant to the models in service. It cannot be kept where the features, the packages that make it, or the user's own
`preprocessing` changed.

A learned class that the live version names keeps its id; new names follow at the end, and one that the data lack keeps
its place. Names that are taken over belong to the build key, and the manifest says how many they are.

>>> graph_changes(live, spec, package_versions(), digest_files(spec, files))    # doctest: +SKIP
['features.price.normalize: z_score → min_max']
"""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline import VERSION
from recordmill.pipeline.dataset.file_names import span_of_file
from recordmill.pipeline.dataset.manifest import Location, Manifest, version_folder
from recordmill.pipeline.dataset.paths import read_checked
from recordmill.pipeline.dataset.profile import FILE as PROFILE
from recordmill.pipeline.dataset.profile import Profiles, profiles_of
from recordmill.pipeline.dataset.version import read_words, without_blank
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.safe_text import cut, public_url
from recordmill.pipeline.sources.options import PATHS
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.features.category import NamedClasses
from recordmill.pipeline.spec.features.feature import Feature
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.latest import rolls_back
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_location
from recordmill.transforms.contract.image_facts import COUNTS
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription


def published_path(path: str) -> str:
    """A source's path without private parts: a URL without password and query, or the last part of a local path."""
    return public_url(path) if "://" in path else os.path.basename(path.rstrip("/"))


def published_spec(spec: Spec) -> dict[str, Any]:
    """The spec without the folders of the machine that built it."""
    published = spec.model_dump(mode="json")
    for source in published["source"]:
        source |= {name: published_path(source[name]) for name in PATHS if source.get(name)}
        if source["format"] == "python":  # a function's options may be secret
            source |= {"options": dict.fromkeys(source["options"]), "inputs": [*map(published_path, source["inputs"])]}
    for name, feature in spec.features.items():
        published["features"][name] |= {option: published_path(path) for option, path in feature.files().items()}
    return published


GRAPH_PACKAGES = ("recordmill", "tensorflow", "tensorflow-text", "tensorflow-transform")
"""The packages that make the graph; another release of the others changes records, but not the graph."""
PACKAGES = ("apache-beam", "numpy", "pillow", "pyarrow", "sentencepiece", *GRAPH_PACKAGES[1:])
"""All packages that the bytes depend on."""
LEARNED_FOLDERS = ("transform_fn", "transformed_metadata", "tokenizers")
"""The folders of a version that its graph and its tokenizers lie in."""
FROM_SHARDS = ("lengths", *COUNTS)
"""The statistics by feature that count what shards hold; a build learns the others before it writes any."""
SUMMARIES = "summaries"
"""The folder of what was learned of the rows, of a version and of each span, which can be added to."""
ANALYSIS = "analysis"
FEATURE_FILES = "feature_files"
SAMPLE_SHARE = "sample_share"
LEARNED_PROFILE = "profile/learned.json"
"""The profile of the rows that a graph was learned from, beside that of a version's own rows."""
SHOWN = 5


def package_versions() -> dict[str, str]:
    """Returns the versions of Recordmill and of `PACKAGES`."""
    return {"recordmill": VERSION} | {name: importlib.metadata.version(name) for name in PACKAGES}


class LearnedAnewError(UserError):
    """Values of the graph changed with the new rows, so that no shard of the live version can be kept."""

    def __init__(self, changes: Sequence[str]) -> None:
        shown = "; ".join(changes[:SHOWN]) + ("; …" if len(changes) > SHOWN else "")
        super().__init__(f"learned values changed, all shards are written again: {shown}")


@dataclass(frozen=True)
class LiveAnalysis:
    """The analysis of the live version, which a build takes over, or adds to."""

    output: str
    """The version's output, a folder or a URL."""
    manifest: Manifest
    spans: tuple[str, ...] = ()
    """The spans whose rows are not read again."""
    is_frozen: bool = True
    """Whether the graph stays what it is, whatever the rows."""

    @property
    def folder(self) -> Location:
        """The version's folder."""
        return version_folder(open_location(self.output), self.manifest.version)

    @property
    def learned_in(self) -> str:
        """The version whose rows the graph was learned from: this one, or the one that this one took it over from."""
        return str(self.manifest.provenance.get(ANALYSIS, {}).get("version", self.manifest.version))

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of the graph's and the tokenizers' files in hexadecimal, by path."""
        return graph_files(self.manifest)

    @property
    def digest(self) -> str:
        """The digest of the graph."""
        return graph_digest(self.manifest)

    @property
    def statistics(self) -> dict[str, dict[str, Any]]:
        """The learned statistics by feature, as `dataset.json` holds them."""
        learned = self.manifest.statistics.items()
        return {name: {key: value for key, value in each.items() if key not in FROM_SHARDS} for name, each in learned}

    @property
    def label_counts(self) -> list[int]:
        """The records of the train split that the graph was learned from, by the label's id; empty without a label."""
        counts = self.manifest.split("train").label_counts or ()
        return list(self.manifest.provenance.get(ANALYSIS, {}).get("label_counts", counts))

    @property
    def summaries(self) -> dict[str, str]:
        """The SHA-256 of the full buckets of the kept spans' rows, by path: their sums, if all spans are kept."""
        spans, files = set(self.spans), self.manifest.files.items() if self.spans else ()
        if spans == self.manifest.spans.keys():
            return {path: entry["sha256"] for path, entry in files if path.startswith(f"{SUMMARIES}/")}
        kept = ((path, entry) for path, entry in files if span_of_file(path) in spans)
        return {path: entry["sha256"] for path, entry in kept if path.split("/")[2] == SUMMARIES}

    @property
    def learned_profile(self) -> bytes | None:
        """The profile of the rows that the graph was learned from, by split; None where the version has none.

        Raises:
            OutputError: it is not what the version's manifest says.
        """
        files = self.manifest.files
        file = next((file for file in (LEARNED_PROFILE, PROFILE) if file in files), None)
        return None if file is None else self._checked(file, files[file]["sha256"])

    @property
    def profiles(self) -> Profiles | None:
        """The counts of `learned_profile`. Raises: OutputError: as `learned_profile`, or they are something else."""
        data = self.learned_profile
        try:
            return None if data is None else profiles_of(data)
        except DatasetError as error:
            raise damaged(self.output, error) from None

    def read(self, file: str) -> bytes:
        """Reads a file of the graph or of a tokenizer. Raises: OutputError: it is not what the manifest says."""
        return self._checked(file, self.files[file])

    def _checked(self, file: str, sha256: str) -> bytes:
        try:
            return read_checked(self.folder, file, sha256)
        except DatasetError as error:
            raise damaged(self.output, error) from None

    def words(self, feature: str) -> tuple[str, ...] | None:
        """Returns the words of a feature's vocabulary in the order of the ids; None where it has none."""
        file = self.manifest.features.get(feature, {}).get("vocabulary")
        if file is None:
            return None
        return without_blank(self.read(file).decode().removesuffix("\n").split("\n"))

    @property
    def sample_share(self) -> float:
        """The share of the train split's images, 0 to 1, that the sums of pixels of every span hold."""
        return float(self.manifest.provenance.get(SAMPLE_SHARE, 1.0))

    @property
    def rejected_labels(self) -> int:
        """The number of rows that a frozen analysis rejected, since it has no id for their label."""
        by_reason = self.manifest.rejects.get("by_reason", {})
        return int(by_reason.get("unknown_label", 0)) if ANALYSIS in self.manifest.provenance else 0

    def to_json(self) -> dict[str, Any]:
        """Returns its part of the provenance of a version that takes it over."""
        return {"version": self.learned_in, "graph_sha256": self.digest, "label_counts": self.label_counts}


def damaged(output: str, fault: object) -> OutputError:
    """Says why the live version's analysis cannot be kept, and what to do."""
    return OutputError(
        f"the analysis cannot be kept, since the live version is damaged: {fault}; {rolls_back(output)}, or learn anew "
        "by `analysis: refresh`"
    )


def graph_files(manifest: Manifest) -> dict[str, str]:
    """Returns the SHA-256 of the files of a version's graph and tokenizers, by path; none where an old one has none."""
    files = manifest.files.items()
    return {path: entry["sha256"] for path, entry in files if path.split("/")[0] in LEARNED_FOLDERS}


def graph_digest(manifest: Manifest) -> str:
    """Returns the digest of a version's graph."""
    return hashlib.sha256(json.dumps(sorted(graph_files(manifest).items())).encode()).hexdigest()


def graph_changes(live: Manifest, spec: Spec, packages: Mapping[str, str], files: Mapping[str, str]) -> list[str]:
    """Lists what keeps a build from taking the live version's graph over, for people; nothing: it can.

    `packages` are versions by name; `files` the SHA-256 of files in hexadecimal, by feature and option: `text.model`.
    """
    before, after = live.spec, published_spec(spec)
    made, known = live.provenance.get("packages", {}), live.provenance.get(FEATURE_FILES, {})
    code = UserCode.of([spec.preprocessing], spec.folder).to_json()["files"] if spec.preprocessing else {}
    built = live.provenance.get("user_code", {}).get("files", {})
    return [
        *_feature_changes(before.get("features", {}), after["features"]),
        *_changes("", *({key: each.get(key) for key in ("label", "preprocessing")} for each in (before, after))),
        *(f"the file of features.{name}" for name, sha256 in files.items() if known.get(name) != sha256),
        *(f"the code of {path}" for path, sha256 in code.items() if built.get(path) != sha256),
        *_changes("", *({name: each.get(name) for name in GRAPH_PACKAGES} for each in (made, packages))),
        *([] if live.files else ["the live version has no digests, since an earlier Recordmill published it"]),
    ]


def _feature_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"features.{name} is {'new' if old is None else 'gone'}"
        elif old != new:
            yield from _changes(f"features.{name}.", old, new)


def _changes(where: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            shown = (json.dumps(old) if not isinstance(old, str) else old for old in (before.get(key), after.get(key)))
            yield f"{where}{key}: {' → '.join(map(cut, shown))}"


Names = Mapping[str, tuple[str, ...]]
"""Names of classes by id, by feature."""
KEPT_NAMES = "kept_names"


def names_to_keep(spec: Spec, folder: Location, manifest: Manifest) -> Names:
    """Returns the names of a version whose ids a build of the spec keeps, by feature; none for features of other kinds.

    Raises:
        DatasetError: a vocabulary of the version cannot be read, or is not what it was.
    """
    kept = {}
    for name in (name for name, feature in spec.features.items() if keeps_ids(feature) and name in manifest.features):
        description = read_description(manifest.features[name])
        if isinstance(description, CategoryDescription | CategoriesDescription) and description.vocabulary:
            words = read_words(folder, description.vocabulary)
            written = manifest.files.get(description.vocabulary, {}).get("sha256")
            if written not in (None, hashlib.sha256("".join(f"{word}\n" for word in words).encode()).hexdigest()):
                raise DatasetError(f"{folder / description.vocabulary} is not what it was")
            kept[name] = without_blank(words)
    return {name: words for name, words in kept.items() if words}


def keeps_ids(feature: Feature) -> bool:
    """Whether a feature's names keep the ids that the live version gave them."""
    return isinstance(feature, NamedClasses) and feature.keeps_ids


def names_kept_by(spec: Spec, folder: Location, manifest: Manifest) -> Names:
    """Returns the names that a version's own build took over. Raises: DatasetError as `names_to_keep`."""
    kept = manifest.provenance.get(KEPT_NAMES, {})
    return {name: words[: kept[name]] for name, words in names_to_keep(spec, folder, manifest).items() if name in kept}


def continues(names: Names, before: Names) -> bool:
    """Whether every name has the id that it had before."""
    return all(names.get(feature, ())[: len(words)] == words for feature, words in before.items())
