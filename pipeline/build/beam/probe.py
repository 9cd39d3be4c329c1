"""Looks from a worker, by a tiny job, whether it reaches the workspace and the output, before the job proper."""

import secrets
from collections.abc import Sequence
from contextlib import suppress

import apache_beam as beam
import tensorflow as tf

from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.dataset.paths import attempt_name
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.open_store import is_local

QUESTION, ANSWER = "probe/driver", "probe/worker"
TEMP = (
    "give a gs:// URL, or a network folder under one path on every machine; TensorFlow opens neither s3:// nor hdfs://"
)


class UnreachableError(UserError):
    """The workers do not reach what the driver wrote; the message says where, and what to do."""


def probe_workers(planned: PlannedBuild, runner: Runner) -> None:
    """Writes a token, and has a worker answer it in the workspace and in the folder of the shards.

    Raises:
        UnreachableError: an answer is missing.
    """
    token, folders = secrets.token_bytes(16), (planned.workspace, planned.shards)
    for folder in folders:
        folder.write(QUESTION, token)
    with runner.pipeline(planned) as pipeline:
        _ = pipeline | "Token" >> beam.Create([token]) | "AnswerFromWorker" >> beam.Map(answer, folders)
    unreached = [folder for folder in folders if folder.read(ANSWER) != token]
    for folder in folders:
        folder.delete(QUESTION)
        folder.delete(ANSWER)
    if unreached:
        raise UnreachableError(_message(unreached[0].url))


def answer(token: bytes, folders: Sequence[Store]) -> None:
    """Answers in a worker where the driver's token is to be seen; the driver reports where it is not."""
    for folder in folders:
        with suppress(OSError, UserError):
            if folder.read(QUESTION) == token:
                folder.write(ANSWER, token)


def probe_temp(planned: PlannedBuild, temp: str, runner: Runner) -> None:
    """Writes a token with TensorFlow's own files, and has a worker answer it with them.

    Raises:
        UnreachableError: the driver cannot write there, or the answer is missing.
    """
    token, question = secrets.token_hex(16), f"{temp.rstrip('/')}/{attempt_name('probe')}"
    try:
        tf.io.gfile.makedirs(temp)
        _write(question, token)
        with runner.pipeline(planned) as pipeline:
            _ = pipeline | "Token" >> beam.Create([token]) | "AnswerFromWorker" >> beam.Map(answer_temp, question)
        answered = tf.io.gfile.exists(f"{question}-answer")
        for name in filter(tf.io.gfile.exists, (question, f"{question}-answer")):
            tf.io.gfile.remove(name)
    except (tf.errors.OpError, OSError) as error:
        raise UnreachableError(f"--temp {temp} cannot be written by TensorFlow: {error}; {TEMP}") from None
    if not answered:
        raise UnreachableError(f"the workers do not reach --temp {temp} with TensorFlow's own files: {TEMP}")


def answer_temp(token: str, question: str) -> None:
    """Answers in a worker where the driver's token is to be seen."""
    with suppress(tf.errors.OpError, OSError), tf.io.gfile.GFile(question) as file:
        if file.read() == token:
            _write(f"{question}-answer", token)


def _write(path: str, text: str) -> None:
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(text)


def _message(url: str) -> str:
    if is_local(url):
        return (
            f"the workers do not reach {url}, a folder of this machine: give an --output that they all reach, such as "
            "s3://bucket/folder or gs://bucket/folder, or a network folder under one path on every machine"
        )
    return (
        f"the workers do not reach {url}, this machine does: give them the same credentials and endpoint in their "
        "environment, and install recordmill[aws] or recordmill[gcp] there"
    )
