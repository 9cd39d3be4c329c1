"""Beam's options as a user gives them."""

import io
import logging
from collections.abc import Sequence
from contextlib import redirect_stderr

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.safe_text import HIDDEN

OURS = {"runner": "--runner NAME", "direct_running_mode": "--processes N", "direct_num_workers": "--processes N"}
"""Beam's options that Recordmill sets, each with the option to use instead."""


def parse_options(arguments: Sequence[str], *, passes_on: bool = False) -> PipelineOptions:
    """Parses Beam's options; refuses those that Beam would drop silently, or end the process for.

    Options that Beam does not know stay among its flags if `passes_on`: a job server may know them.
    """
    if arguments and not arguments[0].startswith("--"):
        raise RunnerError(f"the argument '{arguments[0]}' is one too many; Beam's options begin with --")
    logging.getLogger(PipelineOptions.__module__).disabled = True  # this function refuses instead, without values
    try:
        with redirect_stderr(io.StringIO()):  # argparse: its usage, a hundred lines, and the value
            options = PipelineOptions(list(arguments), pipeline_type_check=False)
            given = options.get_all_options(drop_default=True, retain_unknown_options=True)
            known = options.get_all_options()
    except SystemExit:
        raise RunnerError(f"Apache Beam does not take these options: {_without_values(arguments)}") from None
    for option in given:
        if option not in known and not passes_on:
            raise RunnerError(f"Apache Beam has no option --{option}{did_you_mean(option, known, '--{}')}")
        if option in OURS and given[option] != "multi_threading":
            raise RunnerError(f"--{option} stands before the --: use `{OURS[option]}`")
    setup = options.view_as(SetupOptions)
    if setup.save_main_session:
        raise RunnerError(
            "--save_main_session is refused: it pickles all that the command holds into the job. Leave it out: the "
            "modules that a spec names are sent along as source"
        )
    setup.save_main_session = False  # Dataflow's default is True
    return options


def _without_values(arguments: Sequence[str]) -> str:
    """Options with hidden values: a text after `=`, or alone, may be a password."""
    parts = [argument.partition("=") for argument in arguments]
    return " ".join(f"{name}{mark}{mark and HIDDEN}" if name[:2] == "--" else HIDDEN for name, mark, _ in parts)
