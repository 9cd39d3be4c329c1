"""The runners of a build by their names."""

from importlib import import_module

from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from recordmill.pipeline.build.beam.beam_options import parse_options
from recordmill.pipeline.build.beam.flink import FlinkRunner
from recordmill.pipeline.build.beam.private_servers import PrivateFnApiRunner
from recordmill.pipeline.build.beam.runner import RemoteRunner, Runner
from recordmill.pipeline.build.beam.worker_handler import WORKER_COMMAND
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.parallel import cores


def make_runner(options: RunOptions = RunOptions()) -> Runner:  # noqa: B008 - frozen
    """Makes the runner that a build's options name.

    `local` is Beam's FnApiRunner, also by the name `DirectRunner`, which for Beam is Prism wherever its binary is.

    Raises:
        RunnerError: an option loses data or does not exist.
    """
    name = NAMES.get(options.runner, options.runner)
    beam_options = parse_options(options.beam_options, passes_on=name == "flink")
    direct = beam_options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        raise RunnerError(
            "direct_running_mode=multi_threading is refused: Apache Beam 2.77 silently loses records in it "
            "(its data buffer is cleared without a lock). Leave it out: a build uses every core in one process; "
            "or run separate processes with `--processes N`"
        )
    if name != "local":
        if options.processes > 1:
            raise RunnerError(f"--processes is the local runner's: give {name} its parallelism after --")
        if name == "flink":
            return FlinkRunner(options)
        if name == "dataflow":
            dataflow: Runner = import_module("recordmill.pipeline.build.beam.dataflow").DataflowRunner(options)
            return dataflow  # which loads Google's clients
        return RemoteRunner(_beam_runner(name), beam_options, options.attempts)
    direct.direct_running_mode = "in_memory"  # `multi_processing` would run Beam's own workers, which outlive a driver
    direct.direct_num_workers = options.processes
    environment = SubprocessSDKEnvironment.from_command_string(WORKER_COMMAND) if options.processes > 1 else None
    threads = worker_threads(options.processes)
    return Runner(PrivateFnApiRunner(environment), beam_options, is_local=True, threads=threads)


NAMES = {"DirectRunner": "local", "prism": "PrismRunner", "DataflowRunner": "dataflow"}
"""Other names of runners."""


def _beam_runner(name: str) -> PipelineRunner:
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        ours = "'local', 'flink', 'dataflow'"
        raise RunnerError(f"there is no runner '{name}': use {ours} or one of Beam's: {reason}") from None


def worker_threads(processes: int) -> int:
    """The number of threads of a local worker's transform graph: its share of the cores."""
    return max(1, cores() // processes)
