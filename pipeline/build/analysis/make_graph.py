"""Makes the transform graph from what was learned, once, in the driver, over no rows.

`analyze_in_place` is tf.Transform's way for a function without analyzers: a small Beam job over no rows gives the same
export for three times the CPU.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_transform.impl_helper import analyze_in_place

from recordmill.pipeline.build.analysis.own_preprocessing import OwnPreprocessing
from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.graph_inputs import input_specs
from recordmill.pipeline.dataset.atomic_files import attempt_name
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.transforms.tensorflow.preprocessing import Preprocessing


def make_preprocessing(
    context: BuildContext, vocabularies: Mapping[str, Sequence[bytes]], statistics: Mapping[str, Any], folder: str
) -> Preprocessing:
    """Makes the `preprocessing_fn` of a build; writes its vocabularies' files below a folder, local or at a URL.

    Their folder is named after their content: its name stands in the graph, whose bytes thus follow from the input.
    """
    texts = {vocabulary_name(name): b"".join(word + b"\n" for word in words) for name, words in vocabularies.items()}
    folder = f"{folder}/vocabularies-{hashlib.sha256(repr(texts).encode()).hexdigest()[:32]}"
    tf.io.gfile.makedirs(folder)
    paths = {name: f"{folder}/{vocabulary_name(name)}" for name in vocabularies}
    for file_name, text in texts.items():
        with tf.io.gfile.GFile(f"{folder}/{file_name}", "wb") as file:
            file.write(text)
    own = None
    if context.preprocessing:
        own = OwnPreprocessing(context.preprocessing, context.schema.label, context.user_code, context.workspace)
    return Preprocessing(context.features, paths, statistics, own)


def make_graph(context: BuildContext, preprocessing: Preprocessing) -> str:
    """Makes tf.Transform's export of a function without analyzers, which `tft.TFTransformOutput` opens.

    Returns its folder, in scratch.
    """
    folder = os.path.join(context.scratch, attempt_name("export"))
    analyze_in_place(preprocessing, False, {}, input_specs(context), folder)
    return folder
