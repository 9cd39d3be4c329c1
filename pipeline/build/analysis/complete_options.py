"""Completes the features' options: with the files that a spec names, and the tokenizers that were trained."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from recordmill.pipeline.build.analysis.tokenizer_models import read_model
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.features.classes import read_classes
from recordmill.transforms.contract.kinds.base import FeatureOptions
from recordmill.transforms.contract.kinds.text import TextOptions


def complete_options(
    planned: PlannedBuild, models: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, FeatureOptions]:
    """Returns the options of all features, by name.

    Args:
        planned: the build.
        models: tokenizers that were trained, by the feature that each is named after, once they are; others are read
            from files.

    Raises:
        UserError: a file cannot be read, or is not what it should be.
    """
    completed: dict[str, FeatureOptions] = {}
    for name, options in planned.features.items():
        if isinstance(options, TextOptions):
            completed[name] = _complete_text(planned, name, options, models)
        else:
            completed[name] = options
    return completed


def _complete_text(planned: PlannedBuild, name: str, options: TextOptions, models: Mapping[str, bytes]) -> TextOptions:
    if name in planned.models:
        owner = planned.models[name]
        given = planned.texts()[owner]
        if given.model is None and owner not in models:
            return options
        data = models[owner] if given.model is None else _read(planned, given.model)
        return read_model(data, given, given.model or owner).complete(options)
    if isinstance(options.vocabulary, str):
        try:
            return replace(options, words=read_classes(options.vocabulary))
        except ValueError as error:
            raise UserError(str(error)) from None
    return options


def _read(planned: PlannedBuild, path: str) -> bytes:
    try:
        with planned.files.open(path) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
