"""Recordmill: raw data in; a versioned, training-ready TFRecord dataset out; one reader that feeds it to a model.

Names load at their first use: reading a dataset imports only NumPy, Pillow and google-crc32c, and only `build` imports
Beam, TensorFlow and tf.Transform.

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
    from recordmill.pipeline.adopt.adopt import open_tfrecords
    from recordmill.pipeline.build.build import build
    from recordmill.pipeline.build.images.transcode import decodable
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.errors import DatasetError, UserError
    from recordmill.pipeline.reader.input import Input, with_progress
    from recordmill.pipeline.reader.mix import mix
    from recordmill.pipeline.reader.options import ReadOptions
    from recordmill.pipeline.reader.rows import DamagedRecordError
    from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
    from recordmill.pipeline.verify.files import serving_model
    from recordmill.pipeline.versions.outcome import GateBreachedError, Published
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
    "open_tfrecords",
    "parse_spec",
    "serving_model",
    "with_progress",
]


def __getattr__(name: str) -> Any:
    """Loads a public name from its module. Raises: ModuleNotFoundError: it needs an extra."""
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        need = f'{name} needs {error.name}: pip install "recordmill[build]"'
        raise ModuleNotFoundError(need, name=error.name) from error


def _load(name: str) -> Any:
    module: Any
    match name:
        case "Dataset" | "open_dataset":
            from recordmill import dataset as module
        case "open_tfrecords":
            from recordmill.pipeline.adopt import adopt as module
        case "Input" | "with_progress":
            from recordmill.pipeline.reader import input as module
        case "ReadOptions":
            from recordmill.pipeline.reader import options as module
        case "DamagedRecordError":
            from recordmill.pipeline.reader import rows as module
        case "mix":
            from recordmill.pipeline.reader import mix as module
        case "ArraySpec" | "Ragged":
            from recordmill.transforms.contract import stored as module
        case "DatasetError" | "UserError":
            from recordmill.pipeline import errors as module
        case "build":
            from recordmill.pipeline.build import build as module
        case "RunOptions":
            from recordmill.pipeline.build import run_options as module
        case "GateBreachedError" | "Published":
            from recordmill.pipeline.versions import outcome as module
        case "decodable":
            from recordmill.pipeline.build.images import transcode as module
        case "Spec" | "load_spec" | "parse_spec":
            from recordmill.pipeline.spec import model as module
        case "serving_model":
            from recordmill.pipeline.verify import files as module
        case _:
            raise AttributeError(f"module 'recordmill' has no attribute '{name}'")
    return getattr(module, name)


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
