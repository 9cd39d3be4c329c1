"""The public `build`: answers mistakes at once, and loads TensorFlow and Beam only for a build that may begin.

>>> published = build(load_spec("dataset.yaml"), "out/emoji")  # doctest: +SKIP
>>> published.folder                                           # doctest: +SKIP
'out/emoji/versions/20261120T120000Z-4f1c9a2e'
"""

from contextlib import nullcontext

from recordmill.pipeline.build.cloud_clients import without_cloud_clients
from recordmill.pipeline.build.journal.journal import Journal
from recordmill.pipeline.build.preparation import Prepared, Published, is_plain, prepare_locally
from recordmill.pipeline.build.run_options import Listener, RunOptions, Stage
from recordmill.pipeline.build.runners.flink_cluster import FlinkCluster
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode, code_of
from recordmill.pipeline.private_folder import private_temporary_files
from recordmill.pipeline.safe_text import summary_of
from recordmill.pipeline.spec.model import Spec


class GateBreachedError(UserError):
    """The version is complete, and waits as a candidate because it is too far from the live one."""

    exit_code = ExitCode.GATE

    def __init__(self, message: str, published: Published) -> None:
        super().__init__(message)
        self.published = published
        """The candidate's folder and manifest."""


def held_back(published: Published, output: str) -> str:
    """Says why a candidate waits, and what to do; a line for each breach."""
    candidate = published.candidate
    assert candidate is not None  # noqa: S101 - the caller looked
    again = "" if published.is_new else "; it was built before, and nothing was built again"
    breaches = "".join(f"\n  {line}" for line in candidate.breaches)
    return (
        f"the gate holds {candidate.version} back: it is too far from {candidate.live}, which stays live{again}"
        f"{breaches}\n`recordmill versions approve {output}` publishes it, `recordmill versions reject {output}` "
        "removes it; the limits are `gate` in the spec"
    )


def build(
    spec: Spec,
    output: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: Listener = Listener(),  # noqa: B008 - frozen
) -> Published:
    """Builds a dataset and publishes it; a build that was published already is only made live.

    A version that is too far from the live one, by the spec's `gate`, is kept as a candidate and not published.
    Its end goes to the output's history, whatever it is (`pipeline.build.journal`). Meanwhile all threads of this
    process make their temporary files in a private folder, which goes with the process (`pipeline.private_folder`).

    Args:
        spec: the dataset.
        output: its folder, or its URL.
        options: where and how the build runs.
        listener: the functions to call as it goes on.

    Raises:
        GateBreachedError: the version waits as a candidate; the error's `published` has its folder and manifest. The
            same build again does not repeat the work, and raises this until the candidate is approved or rejected.
        UserError: one clear line: a RunnerError, SourceError, OutputError, NoSpaceError, DiskError, LeaseLostError,
            InputsChangedError, TooManyRejectsError, NothingToPublishError, NothingMendedError, ReconcileError, or a
            WorkerError. The live version stays live, and the next build continues the finished work.
    """
    journal = Journal(output, options)
    try:
        published = run(spec, output, options, journal.follow(listener, spec.name))
    except Exception as error:
        message = str(error) if isinstance(error, UserError) else summary_of(error)
        for warning in journal.end(code_of(error), message):
            listener.on_note(warning)
        raise
    reason = held_back(published, output) if published.candidate else None
    for warning in journal.end(published.exit_code, reason, published):
        listener.on_note(warning)
    if reason is not None:
        raise GateBreachedError(reason, published)
    return published


def run(spec: Spec, output: str, options: RunOptions, listener: Listener, *, alone: bool = False) -> Published:
    """Builds as `build` does, for a caller that writes down the end itself; a candidate is returned.

    `alone` says that nothing but this build uses Beam in this process.
    """
    check_runner(options)
    prepared = prepare_locally(spec, output, options, listener.on_note)
    if isinstance(prepared, Published):
        return prepared
    listener.on_stage(Stage.LOAD)
    with private_temporary_files():
        with without_cloud_clients() if alone and _is_of_this_machine(prepared, output, options) else nullcontext():
            from recordmill.pipeline.build import driver  # four seconds of CPU

        return driver.build(spec, output, options, listener, prepared)


def _is_of_this_machine(prepared: Prepared | None, output: str, options: RunOptions) -> bool:
    """Whether a build opens nothing at a URL; code of the user's may open anything."""
    if prepared is None or prepared.plan.user_code is not None or not is_plain(options):
        return False
    return "://" not in f"{output} {options.temp} {options.work}"


def check_runner(options: RunOptions) -> None:
    """Checks what can be known of a runner before Beam loads.

    Raises:
        UserError: an option is missing, or the cluster does not answer.
    """
    if options.runner == "flink":
        FlinkCluster(options.flink).jar()
