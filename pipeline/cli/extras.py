"""The packages that a command needs, and the files of its sources; loads the standard library alone.

>>> check_extra("report", ("json",))
>>> missing(("json", "no_such_module"))
['no_such_module']
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode

if TYPE_CHECKING:
    from recordmill.pipeline.sources.files import Files
    from recordmill.pipeline.spec.model import Spec

CLI = ("rich", "textual_image", "typer")
"""Every command imports these."""

BUILD = ("apache_beam", "jinja2", "psutil", "pyarrow", "pydantic", "tensorflow", "tensorflow_transform", "yaml")
"""Commands that read a spec or sources need these; sentencepiece and TensorFlow Text, some specs alone."""

BEAM = ("apache_beam",)
"""Commands that read sources at URLs need it."""

EXPORT = ("pyarrow", "pydantic", "yaml")
"""`export` needs these."""

REPORT = ("jinja2", "pyarrow")
"""`report` needs these."""

SOURCES = ("psutil", "pyarrow", "pydantic", "yaml")
"""Commands that read sources, and neither build nor analyze, need these."""


class MissingExtraError(UserError):
    """Packages of an extra are not installed."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


def missing(modules: Iterable[str]) -> list[str]:
    """Lists the modules that are not installed, without importing any."""
    return [module for module in modules if find_spec(module) is None]


def check_extra(extra: str, modules: Iterable[str]) -> None:
    """Raises: MissingExtraError: modules of the extra are not installed."""
    if names := missing(modules):
        raise MissingExtraError(
            f'this command needs an extra: pip install "recordmill[{extra}]" (missing: {", ".join(names)})'
        )


def check_build_extra() -> None:
    """Raises: MissingExtraError: modules are missing that read a spec, build or repair."""
    check_extra("build", BUILD)


def files_of(spec: "Spec", beam_options: Sequence[str] = ()) -> "Files":
    """Returns what opens the files of a spec's sources and features. Raises: as `files_at`."""
    return files_at(spec.model_dump_json(include={"source", "features"}), beam_options)


def files_at(paths: str, beam_options: Sequence[str] = ()) -> "Files":
    """Returns what opens some paths; loads Beam only if one is a URL, and sets the options of its filesystems.

    Raises:
        MissingExtraError: Beam is not installed.
        RunnerError: Beam does not take the options.
    """
    from recordmill.pipeline.sources.files import LocalFiles

    if "://" not in paths:
        return LocalFiles()
    check_extra("build", BEAM)
    from recordmill.pipeline.build.beam.filesystem import BeamFiles, use_options
    from recordmill.pipeline.build.beam.runners import make_runner
    from recordmill.pipeline.build.run_options import RunOptions

    use_options(make_runner(RunOptions(beam_options=tuple(beam_options))).options)
    return BeamFiles()
