"""Recordmill: raw data in; a versioned, training-ready TFRecord dataset out; one reader that feeds it to a model.

Names load when they are first used, so that reading a dataset imports NumPy, Pillow and google-crc32c alone, and only
`build` imports Beam, TensorFlow and tf.Transform.

>>> from recordmill import open_dataset
>>> train = open_dataset("out/emoji").training_input("train", batch_size=256, seed=1)  # doctest: +SKIP
>>> for features, label in train.as_numpy():  # doctest: +SKIP
...     ...
>>> model.fit(train.as_tf_data())  # doctest: +SKIP
"""

import os.path
from typing import TYPE_CHECKING, Any

if os.path.isfile(os.path.join(os.path.dirname(__file__), "pipeline")):
    raise ImportError(
        "recordmill/pipeline and recordmill/transforms are text files here, not links: this checkout was made without "
        "symbolic links. Run `git config core.symlinks true` (on Windows in developer mode), and check out again"
    )

from recordmill.pipeline import VERSION as __version__  # noqa: E402 - below the check of the links

if TYPE_CHECKING:
    from recordmill.dataset import Dataset, open_dataset
    from recordmill.pipeline.build.build import build
    from recordmill.pipeline.build.images.transcode import decodable
    from recordmill.pipeline.build.outcome import GateBreachedError, Published
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.errors import DatasetError, UserError
    from recordmill.pipeline.reader.input import Input
    from recordmill.pipeline.reader.metrics import with_progress
    from recordmill.pipeline.reader.mix import mix
    from recordmill.pipeline.reader.options import ReadOptions
    from recordmill.pipeline.reader.rows import DamagedRecordError
    from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
    from recordmill.pipeline.verify.files import serving_model
    from recordmill.transforms.contract.stored import ArraySpec, Ragged

__all__ = [
    "ArraySpec",
    "DamagedRecordError",
    "Dataset",
    "DatasetError",
    "GateBreachedError",
    "Input",
    "Published",
    "Ragged",
    "ReadOptions",
    "RunOptions",
    "Spec",
    "UserError",
    "__version__",
    "build",
    "decodable",
    "load_spec",
    "mix",
    "open_dataset",
    "parse_spec",
    "serving_model",
    "with_progress",
]


def __getattr__(name: str) -> Any:
    """Loads a public name from the module that defines it.

    Raises:
        ModuleNotFoundError: it needs packages of an extra.
    """
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        need = f'{name} needs {error.name}: pip install "recordmill[build]"'
        raise ModuleNotFoundError(need, name=error.name) from error


def _load(name: str) -> Any:
    match name:
        case "Dataset" | "open_dataset":
            from recordmill import dataset

            return getattr(dataset, name)
        case "Input":
            from recordmill.pipeline.reader import input

            return getattr(input, name)
        case "ReadOptions":
            from recordmill.pipeline.reader import options

            return getattr(options, name)
        case "DamagedRecordError":
            from recordmill.pipeline.reader import rows

            return getattr(rows, name)
        case "mix":
            from recordmill.pipeline.reader import mix

            return getattr(mix, name)
        case "with_progress":
            from recordmill.pipeline.reader import metrics

            return getattr(metrics, name)
        case "ArraySpec" | "Ragged":
            from recordmill.transforms.contract import stored

            return getattr(stored, name)
        case "DatasetError" | "UserError":
            from recordmill.pipeline import errors

            return getattr(errors, name)
        case "build":
            from recordmill.pipeline.build import build as entry

            return getattr(entry, name)
        case "GateBreachedError" | "Published":
            from recordmill.pipeline.build import outcome

            return getattr(outcome, name)
        case "RunOptions":
            from recordmill.pipeline.build import run_options

            return getattr(run_options, name)
        case "decodable":
            from recordmill.pipeline.build.images import transcode

            return getattr(transcode, name)
        case "Spec" | "load_spec" | "parse_spec":
            from recordmill.pipeline.spec import model

            return getattr(model, name)
        case "serving_model":
            from recordmill.pipeline.verify import files

            return getattr(files, name)
        case _:
            raise AttributeError(f"module 'recordmill' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
