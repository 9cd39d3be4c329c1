"""Loads the code that a process needs beside Recordmill's."""

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.transforms.tensorflow.cleaning import text_ops


def install_user_code(planned: PlannedBuild) -> None:
    """Loads what this process needs to run the graph: the user's modules, and tensorflow-text's operations."""
    if planned.user_code is not None:
        planned.user_code.install()
    if any(text.needs_tensorflow_text for text in planned.texts().values()):
        text_ops()
