"""A build's runner: runs its jobs one after the other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.failures import raising_left_error
from recordmill.pipeline.build.run_options import Listener
from recordmill.pipeline.build.runners.job import failing_as_job


class Runner:
    """Runs the jobs of a build; a context manager, which ends what it started."""

    attempts = 1
    """The number of attempts at a build; `pipeline` raises `JobFailedError` where another attempt may succeed."""

    probes_workers = True
    """Lets a tiny job look first if workers reach the workspace; False where starting a job takes minutes."""

    def __init__(self, runner: PipelineRunner, options: PipelineOptions, *, is_local: bool, threads: int = 0) -> None:
        self.options, self.is_local = options, is_local
        self.threads = threads
        """The number of threads of a worker's transform graph; 0 for as many as the worker has cores."""
        self._runner = runner

    def begin(self, build_key: str, listener: Listener, checks: Sequence[Callable[[], None]]) -> None:
        """Prepares for an attempt at a build, whose lease this process holds: ends jobs that a dead driver left.

        Args:
            build_key: the build's key.
            listener: the functions to call as jobs go on.
            checks: quick functions that raise a `UserError` if a running job must end.

        Raises:
            UserError: the cluster does not answer, or an old job does not end.
        """

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[Pipeline]:
        """Returns a pipeline, which runs at the end of the block.

        Raises:
            WorkerError: a worker failed with a `UserError`; it takes the place of the runner's own error.
            JobFailedError: a worker could not use the output, or the job failed otherwise, on a cluster.
        """
        with raising_left_error(planned.workspace), self._job() as job:
            yield job

    def _job(self) -> Pipeline:
        return Pipeline(runner=self._runner, options=self.options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class RemoteRunner(Runner):
    """Any runner of Beam but the local one; its failed jobs may be tried again."""

    def __init__(self, runner: PipelineRunner, options: PipelineOptions, attempts: int) -> None:
        super().__init__(runner, options, is_local=False)
        self.attempts = attempts

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[Pipeline]:
        """Returns a pipeline; its failure is a `JobFailedError`."""
        with raising_left_error(planned.workspace), failing_as_job(), self._job() as job:
            yield job
