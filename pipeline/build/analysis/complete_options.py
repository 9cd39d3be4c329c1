"""Completes the features' options with what the data and the files that a spec names hold."""

from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.build.analysis.tokenizer_models import read_model
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.features.classes import read_classes


def complete_options(
    planned: PlannedBuild, models: Mapping[str, bytes], classes: tuple[str, ...] | None
) -> dict[str, Mapping[str, Any]]:
    """Gives the options of all features, by name.

    Args:
        planned: the build.
        models: tokenizers that were trained, by the feature that each is named after; others are read from files.
        classes: the label's, where they were counted before the job.

    Raises:
        UserError: a file cannot be read, or is not what it should be.
    """
    return {name: {**options, **_added(planned, name, models, classes)} for name, options in planned.features.items()}


def _added(
    planned: PlannedBuild, name: str, models: Mapping[str, bytes], classes: tuple[str, ...] | None
) -> dict[str, Any]:
    options = planned.features[name]
    if name == planned.schema.label and classes is not None:
        return {"classes": classes}
    if name in planned.models:
        owner = planned.models[name]
        given = planned.features[owner]
        data = models[owner] if owner in models else _read(planned, given["model"])
        return read_model(data, given, given["model"] or owner).options()
    if options["kind"] == "text" and isinstance(options["vocabulary"], str):
        return {"given_words": _words(options["vocabulary"])}
    return {}


def _read(planned: PlannedBuild, path: str) -> bytes:
    try:
        with planned.files.open(path) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def _words(path: str) -> tuple[str, ...]:
    try:
        return read_classes(path)
    except ValueError as error:
        raise UserError(str(error)) from None
