"""The public `build`: answers mistakes at once, and loads TensorFlow and Beam only for a build that may begin.

>>> published = build(load_spec("dataset.yaml"), "out/emoji")  # doctest: +SKIP
>>> published.folder                                           # doctest: +SKIP
'out/emoji/versions/20261120T120000Z-4f1c9a2e'
"""

from recordmill.pipeline.build.preparation import Published, prepare_locally
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.spec.model import Spec


def build(
    spec: Spec,
    output: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: Listener = Listener(),  # noqa: B008 - frozen
) -> Published:
    """Builds a dataset and publishes it; a build that was published already is only made live.

    Args:
        spec: the dataset.
        output: its folder, or its URL.
        options: where and how the build runs.
        listener: the functions to call as it goes on.

    Raises:
        UserError: one clear line: a RunnerError, SourceError, OutputError, NoSpaceError, DiskError, LeaseLostError,
            InputsChangedError, TooManyRejectsError, NothingToPublishError, NothingMendedError, ReconcileError, or a
            WorkerError. The live version stays live, and the next build continues the finished work.
    """
    prepared = prepare_locally(spec, output, options, listener.on_note)
    if prepared is not None and prepared.published is not None:
        return prepared.published
    listener.on_stage("loading Apache Beam and TensorFlow")
    from recordmill.pipeline.build import driver  # ten seconds of CPU

    return driver.build(spec, output, options, listener, prepared)
