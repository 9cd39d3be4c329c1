"""The givens of a build, read once: the user's code and files, the sources' files, and the live version's parts."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from recordmill.pipeline.build.base.inherited import Inherited, SpanError, inherit
from recordmill.pipeline.build.inputs.span_sources import ListedSpan, SpanSource, by_span, list_spans
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.options import UserRows
from recordmill.pipeline.sources.paths import planning
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.base import Base


@dataclass(frozen=True)
class Given:
    """Everything that a build starts from, each listed once."""

    code: UserCode | None  # of the functions that the spec names
    feature_files: Mapping[str, str]
    """The SHA-256 of each file that features name, in hexadecimal, by feature and option."""
    inherited: Inherited
    sources: tuple[SpanSource, ...]  # sources, by span; with `--span` only those of the named spans
    spans: Mapping[str, ListedSpan]  # spans with files of rows; empty where the spec has none

    @classmethod
    def of(
        cls,
        spec: Spec,
        files: Files,
        base: Base | None = None,
        inputs: pa.Table | None = None,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        *,
        keeps_spans: bool = True,
    ) -> "Given":
        """Lists everything, without opening a source's file; the arguments and errors are those of `make_plan`."""
        code, feature_files = user_code(spec), digest_files(spec, files)
        inherited = inherit(spec, base, options, feature_files, keeps_spans=keeps_spans)
        if options.spans and options.compact:
            raise SpanError("--span builds some spans and --compact reads all: give one of them")
        if options.spans and not spec.has_templates:
            raise SpanError("--span: no source names spans: give a `path` with {span} or {YYYY}, {MM} and {DD}")
        sources = by_span(spec, files, options.spans, inherited.base, inputs)
        spans = list_spans(sources, files) if spec.has_spans else {}
        if spec.has_spans and not spans and not options.spans:
            raise SourceError(f"{', '.join(source.path for source in spec.source)}: no file holds a row")
        return cls(code, feature_files, inherited, sources, spans)


def user_code(spec: Spec) -> UserCode | None:
    """Returns the user's modules that the spec names; None if it names no function."""
    references = [name for source in spec.source if isinstance(source, UserRows) for name in source.references()]
    references += [spec.preprocessing] if spec.preprocessing else []
    return UserCode.of(references, spec.folder) if references else None


def digest_files(spec: Spec, files: Files) -> dict[str, str]:
    """Returns the SHA-256 of each file that features name. Raises: SourceError."""
    digests = dict[str, str]()
    for name, path in spec.files().items():
        with planning(path), files.open(path) as file:
            digests[name] = hashlib.sha256(file.read()).hexdigest()
    return digests
