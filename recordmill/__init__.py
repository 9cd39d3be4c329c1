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
from importlib import import_module
from typing import TYPE_CHECKING, Any

if os.path.isfile(os.path.join(os.path.dirname(__file__), "pipeline")):
    raise ImportError(
        "recordmill/pipeline and recordmill/transforms are text files here, not links: this checkout was made without "
        "symbolic links. Run `git config core.symlinks true` (on Windows in developer mode), and check out again"
    )

from recordmill.pipeline import VERSION as __version__  # noqa: E402 - below the check of the links

if TYPE_CHECKING:
    from recordmill.dataset import Dataset, open_dataset
    from recordmill.pipeline.adopt.adopt import adopt, open_tfrecords
    from recordmill.pipeline.build.build import build
    from recordmill.pipeline.build.images.transcode import decodable
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.errors import DatasetError, UserError
    from recordmill.pipeline.forecast.forecast import plan
    from recordmill.pipeline.forget import forget
    from recordmill.pipeline.reader.input import Input, with_progress
    from recordmill.pipeline.reader.mix import mix
    from recordmill.pipeline.reader.options import ReadOptions
    from recordmill.pipeline.reader.rows import DamagedRecordError
    from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
    from recordmill.pipeline.verify.files import serving_model
    from recordmill.pipeline.verify.verify import verify
    from recordmill.pipeline.versions.publishing import GateBreachedError, Published
    from recordmill.transforms.base.stored import ArraySpec, Ragged

__all__ = [
    "ArraySpec", "DamagedRecordError", "Dataset", "DatasetError", "GateBreachedError", "Input", "Published", "Ragged",
    "ReadOptions", "RunOptions", "Spec", "UserError", "__version__", "adopt", "build", "decodable", "forget",
    "load_spec", "mix", "open_dataset", "open_tfrecords", "parse_spec", "plan", "serving_model", "verify",
    "with_progress",
]  # fmt: skip
MODULES = {
    "dataset": ("Dataset", "open_dataset"),
    "pipeline.adopt.adopt": ("adopt", "open_tfrecords"),
    "pipeline.build.build": ("build",),
    "pipeline.build.images.transcode": ("decodable",),
    "pipeline.build.run_options": ("RunOptions",),
    "pipeline.errors": ("DatasetError", "UserError"),
    "pipeline.forecast.forecast": ("plan",),
    "pipeline.forget": ("forget",),
    "pipeline.reader.input": ("Input", "with_progress"),
    "pipeline.reader.mix": ("mix",),
    "pipeline.reader.options": ("ReadOptions",),
    "pipeline.reader.rows": ("DamagedRecordError",),
    "pipeline.spec.model": ("Spec", "load_spec", "parse_spec"),
    "pipeline.verify.files": ("serving_model",),
    "pipeline.verify.verify": ("verify",),
    "pipeline.versions.publishing": ("GateBreachedError", "Published"),
    "transforms.base.stored": ("ArraySpec", "Ragged"),
}


def __getattr__(name: str) -> Any:
    """Loads a public name from its module. Raises: ModuleNotFoundError: it needs an extra."""
    for module, names in MODULES.items():
        if name in names:
            try:
                return getattr(import_module(f"{__name__}.{module}"), name)
            except ModuleNotFoundError as error:
                need = f'{name} needs {error.name}: pip install "recordmill[build]"'
                raise ModuleNotFoundError(need, name=error.name) from error
    raise AttributeError(f"module 'recordmill' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
