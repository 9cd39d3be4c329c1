"""The keys of a build: digests of everything that decides a byte of the result.

These are the spec, our version and those of the packages at work, the user's modules, and the listed inputs with their
sizes and times of change. `BuildPlan.build_key` adds the live version's part.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from recordmill.pipeline.build.inputs.span_sources import Group, ListedSpan, digest_of, list_groups
from recordmill.pipeline.build.plan.given import Given, digest_files, package_versions, user_code
from recordmill.pipeline.dataset.manifest import Span
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import Spec

NO_PART_OF_THE_KEY = {"rejects", "gate", "analysis", "about"}
"""Options left out of the source key: a stopped build continues after its limit is raised; an inherited graph's digest
is in the build key; descriptions change no byte."""
RECIPE = "recipe_sha256"
"""The manifest's digest of all that decides the records of every span, in its `provenance`."""
SOURCES = "sources_sha256"
"""The manifest's digest of the spec's sources, some of which may have no file in a span."""


@dataclass(frozen=True)
class Keys:
    """The names of a build and of its spans: digests of what they are made of."""

    parts: Mapping[str, Any]
    """All that decides a byte, except the inputs and the live version."""
    spans: Mapping[str, Span]
    """The listed spans with their keys, without rows; empty where the spec has no spans."""

    @classmethod
    def of(cls, spec: Spec, given: Given, limit: int | None = None) -> "Keys":
        """Names a build of what is given; `limit` is a trial's number of rows."""
        parts = key_parts(spec, given.code, given.feature_files) | ({} if limit is None else {"limit": limit})
        keys = cls(parts, {})
        return cls(parts, keys.of_spans(given.spans))

    @cached_property
    def recipe(self) -> str:
        """The digest of what decides the records of all spans; each span's key has its own sources."""
        spec = {name: option for name, option in self.parts["spec"].items() if name != "source"}
        return sha256_of({**self.parts, "spec": spec})

    @property
    def provenance(self) -> dict[str, str]:
        """The manifest's part by which `--span` recognizes spans that it can keep."""
        return {RECIPE: self.recipe, SOURCES: sha256_of(self.parts["spec"]["source"])}

    def source_key(self, inputs_sha256: str) -> str:
        """Returns the digest of the spec, the packages and the inputs."""
        return sha256_of({**self.parts, "inputs": inputs_sha256})

    def of_spans(self, listed: Mapping[str, ListedSpan]) -> dict[str, Span]:
        """Returns spans as listed, with their keys."""
        return {name: self._span(span) for name, span in listed.items()}

    def _span(self, listed: ListedSpan) -> Span:
        sources = self.parts["spec"]["source"]
        options = [[each.index, each.key_prefix, sources[each.index]] for each in listed.sources]
        key = sha256_of([self.recipe, options, listed.sha256])
        return Span(key, {}, listed.files, listed.bytes, listed.sha256)


def key_parts(spec: Spec, code: UserCode | None, files: Mapping[str, str]) -> dict[str, Any]:
    """Returns all that decides a byte of the result, with a place for the digest of the inputs."""
    parts: dict[str, Any] = {"spec": spec.model_dump(mode="json", exclude=NO_PART_OF_THE_KEY)}
    parts |= {"packages": package_versions(), "inputs": None}
    parts |= {"code": code.sha256} if code else {}
    return parts | ({"files": list(files.values())} if files else {})


def listing_key(spec: Spec, files: Files) -> str:
    """Returns the source key of a plan that uses all listed files.

    Raises: UserError: a source, the user's code, or a file that the spec names is missing. OSError: as `list_groups`.
    """
    given = Given.of(spec, files)
    keys = Keys.of(spec, given)
    groups = () if spec.has_spans else (Group(each, each.listed(files)) for each in given.sources)
    return keys.source_key(spans_digest(keys.spans) if spec.has_spans else groups_digest(groups))


def sighting_key(spec: Spec, files: Files) -> str:
    """Digests as `listing_key`, and for local files also their tags on this machine. Raises: as `listing_key`."""
    parts = key_parts(spec, user_code(spec), digest_files(spec, files))
    return sha256_of(parts | {"seen": groups_digest(list_groups(spec, files), "seen")})


def groups_digest(groups: Iterable[Group], content: str = "keyed") -> str:
    """Digests the files of sources by an attribute that stands for their content."""
    return digest_of(enumerate(group.files for group in groups), attrgetter(content))


def spans_digest(*spans: Mapping[str, Span]) -> str:
    """Digests the inputs of spans; of merged ones, the keys of their members."""
    keys = dict[str, str]()
    for name, span in (pair for some in spans for pair in some.items()):
        keys |= span.members or {name: span.key}
    return sha256_of(sorted(keys.items()))


def sha256_of(parts: object) -> str:
    """Digests the parts of a key, in hexadecimal."""
    # The order of the spec's keys counts: it decides the ranges of hashes of the splits.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
