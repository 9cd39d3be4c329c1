"""Recordmill: raw data in; a versioned, training-ready TFRecord dataset out; one reader that feeds it to a model.

Names load when they are first used, so that reading a dataset imports NumPy, Pillow and google-crc32c alone, and only
`build` imports Beam, TensorFlow and tf.Transform.

>>> from recordmill import open_dataset
>>> train = open_dataset("out/emoji").training_input("train", batch_size=256, seed=1)  # doctest: +SKIP
>>> for features, label in train.as_numpy():  # doctest: +SKIP
...     ...
>>> model.fit(train.as_tf_data())  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recordmill.pipeline.build.entry import GateBreachedError, build
    from recordmill.pipeline.build.images.transcode import decodable
    from recordmill.pipeline.build.preparation import Published
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.errors import DatasetError, UserError
    from recordmill.pipeline.reader.dataset import Dataset, open_dataset
    from recordmill.pipeline.reader.input import Input
    from recordmill.pipeline.reader.metrics import with_progress
    from recordmill.pipeline.reader.mix import mix
    from recordmill.pipeline.reader.options import ReadOptions
    from recordmill.pipeline.reader.rows import DamagedRecordError
    from recordmill.pipeline.spec.model import Spec, load_spec, parse_spec
    from recordmill.pipeline.verify.files import serving_model
    from recordmill.pipeline.version import VERSION as __version__
    from recordmill.transforms.contract.ragged import ArraySpec, Ragged

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

_MODULES = {
    "pipeline.build.entry": ("GateBreachedError", "build"),
    "pipeline.build.images.transcode": ("decodable",),
    "pipeline.build.preparation": ("Published",),
    "pipeline.build.run_options": ("RunOptions",),
    "pipeline.errors": ("DatasetError", "UserError"),
    "pipeline.reader.rows": ("DamagedRecordError",),
    "pipeline.reader.dataset": ("Dataset", "open_dataset"),
    "pipeline.reader.input": ("Input",),
    "pipeline.reader.metrics": ("with_progress",),
    "pipeline.reader.mix": ("mix",),
    "pipeline.reader.options": ("ReadOptions",),
    "pipeline.spec.model": ("Spec", "load_spec", "parse_spec"),
    "pipeline.verify.files": ("serving_model",),
    "transforms.contract.ragged": ("ArraySpec", "Ragged"),
}
_OWNERS = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loads a public name from the module that defines it."""
    if name == "__version__":
        return import_module("recordmill.pipeline.version").VERSION
    if name not in _OWNERS:
        raise AttributeError(f"module 'recordmill' has no attribute '{name}'")
    value = getattr(import_module(f"recordmill.{_OWNERS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
