"""The runners of a build, and Beam's options as a user gives them."""

import io
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, SetupOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from recordmill.pipeline.build.beam.worker_handler import WORKER_COMMAND
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.failures import raising_left_error
from recordmill.pipeline.errors import UserError, did_you_mean
from recordmill.pipeline.redaction import HIDDEN


class RunnerError(UserError):
    """A runner that does not exist, or that these options make unsafe."""


@dataclass(frozen=True)
class Runner:
    """A runner of Beam with its options."""

    runner: PipelineRunner
    options: PipelineOptions
    is_local: bool
    threads: int
    """The number of threads of a worker's transform graph."""

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[Pipeline]:
        """Gives a pipeline, which runs at the end of the block.

        Raises:
            WorkerError: a worker failed with a `UserError`; it takes the place of the runner's own error.
        """
        folder = planned.path("scratch")
        with raising_left_error(folder), Pipeline(runner=self.runner, options=self.options) as pipeline:
            yield pipeline


def make_runner(name: str, processes: int = 1, beam_options: Sequence[str] = ()) -> Runner:
    """Makes a runner.

    `local` is Beam's FnApiRunner: the name `DirectRunner` would be Prism wherever its binary is available.

    Raises:
        RunnerError: an option loses data or does not exist.
    """
    options = _parse(beam_options)
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        raise RunnerError(
            "direct_running_mode=multi_threading is refused: Apache Beam 2.77 silently loses records in it "
            "(its data buffer is cleared without a lock). Leave it out: a build uses every core in one process; "
            "or run separate processes with `--processes N`"
        )
    if name != "local":
        if processes > 1:
            raise RunnerError(f"--processes is the local runner's: give {name} its parallelism after --")
        return Runner(_other_runner(name), options, False, worker_threads(False, processes))
    direct.direct_running_mode = "in_memory"  # `multi_processing` would run Beam's own workers, which outlive a driver
    direct.direct_num_workers = processes
    environment = SubprocessSDKEnvironment.from_command_string(WORKER_COMMAND) if processes > 1 else None
    return Runner(FnApiRunner(environment), options, True, worker_threads(True, processes))


OURS = {"runner": "--runner NAME", "direct_running_mode": "--processes N", "direct_num_workers": "--processes N"}
"""Beam's options that Recordmill sets, each with the option to use instead."""


def _parse(arguments: Sequence[str]) -> PipelineOptions:
    """Parses Beam's options; refuses those that Beam would drop silently, or end the process for."""
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
        if option not in known:
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


def _other_runner(name: str) -> PipelineRunner:
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        raise RunnerError(f"there is no runner '{name}': use 'local' or one of Beam's: {reason}") from None


def worker_threads(local: bool, processes: int) -> int:
    """The number of threads of a worker's transform graph: its share of the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes) if local else cores
