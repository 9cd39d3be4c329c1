"""A build's runner, which runs its jobs one after another, and the user's options for Beam."""

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from contextvars import ContextVar, copy_context
from typing import Any, Self

import apache_beam as beam
from apache_beam import pipeline as pipelines
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.runners.runner import PipelineRunner
from apache_beam.utils import interactive_utils

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import raising_left_error
from recordmill.pipeline.build.run_options import Listener
from recordmill.pipeline.build.runners.job import RunnerError, failing_as_job
from recordmill.pipeline.errors import did_you_mean
from recordmill.pipeline.safe_text import HIDDEN

OURS = {"runner": "--runner NAME", "direct_running_mode": "--processes N", "direct_num_workers": "--processes N"}
"""Beam's options that Recordmill sets, each with the option to use instead."""
_is_job = ContextVar("is_job", default=False)
_is_in_ipython = interactive_utils.is_in_ipython
interactive_utils.is_in_ipython = pipelines.is_in_ipython = lambda: not _is_job.get() and _is_in_ipython()
"""In IPython Beam labels steps by the cell, and for that imports its data frames, which fail with pandas 3."""


class JobPipeline(beam.Pipeline):  # type: ignore[misc]
    """A pipeline that Beam treats in IPython as elsewhere; other pipelines of the session keep Beam's way."""

    def apply(self, *given: Any, **named: Any) -> Any:
        return _as_job(super().apply, *given, **named)

    def run(self, *given: Any, **named: Any) -> Any:
        return _as_job(super().run, *given, **named)


def _as_job(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    context = copy_context()
    context.run(_is_job.set, True)
    return context.run(function, *given, **named)


class Runner:
    """Runs the jobs of a build; a context manager, which ends the processes that it started."""

    probes_workers = True
    """Runs a tiny job first, to check that workers reach the workspace; False if starting a job takes minutes."""

    def __init__(
        self, runner: PipelineRunner, options: PipelineOptions, attempts: int = 1, *, is_local: bool = False
    ) -> None:
        self.options, self.is_local, self._runner = options, is_local, runner
        self.attempts = attempts
        """The number of attempts at a build; `pipeline` raises `JobFailedError` where another attempt may succeed."""
        self.threads = 0  # the number of threads of a worker's transform graph; 0 for one per core of the worker
        self._build_key, self._listener, self._checks = "", Listener(), list[Callable[[], None]]()

    def begin(self, build_key: str, listener: Listener, checks: Sequence[Callable[[], None]]) -> None:
        """Prepares for an attempt at a build under this process's lease: ends jobs that a dead driver left.

        `checks` are quick functions that raise a `UserError` to end a running job. Raises: UserError: jobs do not end.
        """
        self._build_key, self._listener, self._checks = build_key, listener, list(checks)

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[beam.Pipeline]:
        """Yields a pipeline, which runs at the end of the block.

        Raises: WorkerError: a worker failed with a `UserError`; it replaces the runner's own error. JobFailedError: a
        worker could not use the output, or the job failed otherwise, on a cluster.
        """
        failing = nullcontext() if self.is_local else failing_as_job()
        job = JobPipeline(runner=self._runner, options=self.options)
        with raising_left_error(planned.workspace), failing, job as pipeline:
            yield pipeline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class _Options(PipelineOptions):  # type: ignore[misc]
    """Beam's options with each view made once: a small build asks for 143, a tenth of its CPU time."""

    def view_as(self, cls: type[PipelineOptions]) -> PipelineOptions:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def parse_options(arguments: Sequence[str], *, passes_on: bool = False) -> PipelineOptions:
    """Parses Beam's options; refuses those that Beam would drop silently, or end the process for.

    `passes_on` keeps unknown options among Beam's flags: a job server may know them.
    """
    if arguments and not arguments[0].startswith("--"):
        raise RunnerError(f"the argument '{arguments[0]}' is one too many; Beam's options begin with --")
    logging.getLogger(PipelineOptions.__module__).disabled = True  # it logs values; this function does not
    try:
        with redirect_stderr(io.StringIO()):  # argparse: its usage, a hundred lines, and the value
            options = _Options(list(arguments), pipeline_type_check=False)
            given = options.get_all_options(drop_default=True, retain_unknown_options=True)
            known = options.get_all_options()
    except SystemExit:
        parts = [argument.partition("=") for argument in arguments]  # a value, after `=` or alone, may be a password
        shown = (f"{name}{mark}{mark and HIDDEN}" if name[:2] == "--" else HIDDEN for name, mark, _ in parts)
        raise RunnerError(f"Apache Beam does not take these options: {' '.join(shown)}") from None
    for option in given:
        if option not in known and not passes_on:
            raise RunnerError(f"Apache Beam has no option --{option}{did_you_mean(option, known, '--{}')}")
        if option in OURS and given[option] != "multi_threading":
            raise RunnerError(f"--{option} belongs before the --: use `{OURS[option]}`")
    setup = options.view_as(SetupOptions)
    if setup.save_main_session:
        raise RunnerError(
            "--save_main_session is refused: it pickles the command's whole state into the job. Leave it out: the "
            "modules that a spec names are sent as source"
        )
    setup.save_main_session = False  # Dataflow's default is True
    return options
