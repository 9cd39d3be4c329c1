"""Checks what a spec's spans go together with."""

from collections.abc import Sequence
from typing import NamedTuple

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.sources.globs import TEMPLATED, Template, is_template
from recordmill.pipeline.sources.options import SourceOptions
from recordmill.pipeline.spec.duplicates import Duplicates
from recordmill.pipeline.spec.split_by import SplitBy


def check_spans(sources: Sequence[SourceOptions], split_by: SplitBy | None, duplicates: Duplicates) -> None:
    """Checks the placeholders in sources' paths, and that rows' places depend on no row of another span.

    Raises:
        WrongValueError: they are wrong, or the spec holds what compares the rows of all spans.
    """
    for source in sources:
        _check_placeholders(source)
    if not any(map(is_template, sources)):
        return
    if comparison := compares_all_rows(split_by, duplicates):
        message = f"{comparison.reason}: {comparison.remedy}, or choose a `path` without placeholders"
        raise WrongValueError(message, *comparison.option)


class Comparison(NamedTuple):
    """The option of a spec that compares the rows of all spans."""

    option: tuple[str, ...]
    reason: str
    remedy: str


def compares_all_rows(split_by: SplitBy | None, duplicates: Duplicates) -> Comparison | None:
    """Gives what compares each row with all others, also those that a build of spans does not read; None if nothing."""
    others = "each row with those of all spans, which a build of one does not read"
    if duplicates.action != "keep":
        return Comparison(("duplicates",), f"`{duplicates.action}` compares {others}", "choose `keep`")
    if duplicates.near:
        return Comparison(("duplicates", "near"), f"`near` compares {others}", "leave it out")
    if split_by is not None and split_by.stratify is not None:
        return Comparison(("split_by",), f"`stratify` counts {others}", "split by a column")
    return None


def _check_placeholders(source: SourceOptions) -> None:
    names = Template(source.path).names
    if fault := Template(source.path).fault():
        raise WrongValueError(f"{source.path}: {fault}", "source")
    for option in TEMPLATED:
        unknown = sorted(Template(getattr(source, option, None) or "").names - names)
        if unknown:
            raise WrongValueError(f"`{option}` holds {{{unknown[0]}}}, which `path` lacks", "source")
    if names and source.format == "python":
        raise WrongValueError("a function's rows belong to no span: give a `path` without placeholders", "source")
