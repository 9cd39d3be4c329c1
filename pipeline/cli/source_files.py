"""The files that a command reads sources from: this machine's alone, or those at URLs, which Beam opens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recordmill.pipeline.sources.files import Files
    from recordmill.pipeline.spec.model import Spec


def files_of(spec: "Spec", beam_options: Sequence[str] = ()) -> "Files":
    """Gives the files of a spec's sources and features, as `files_at`."""
    return files_at(spec.model_dump_json(include={"source", "features"}), beam_options)


def files_at(paths: str, beam_options: Sequence[str] = ()) -> "Files":
    """Gives what opens some paths; loads Beam only where one is a URL, and sets the options of its filesystems.

    Raises:
        MissingExtraError: Beam is not installed.
        RunnerError: Beam does not take the options.
    """
    from recordmill.pipeline.sources.files import LocalFiles

    if "://" not in paths:
        return LocalFiles()
    from recordmill.pipeline.cli.extras import BEAM, check_extra

    check_extra("build", BEAM)
    from recordmill.pipeline.build.beam.filesystem import BeamFiles, use_options
    from recordmill.pipeline.build.beam.runners import make_runner
    from recordmill.pipeline.build.run_options import RunOptions

    use_options(make_runner(RunOptions(beam_options=tuple(beam_options))).options)
    return BeamFiles()
