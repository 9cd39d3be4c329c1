"""A serving model in a process that has TensorFlow and not the project."""

import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

SERVE = """
import importlib.abc, pickle, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("recordmill", "tensorflow_transform", "apache_beam", "tfx_bsl"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
import tensorflow as tf
import tensorflow_text  # the spec asks for its operations

folder, signature, file = sys.argv[1:]
serve = tf.saved_model.load(folder).signatures[signature]
with open(file, "rb") as given:
    columns = pickle.load(given)
specs = serve.structured_input_signature[1]
served = serve(**{name: tf.constant(columns[name], spec.dtype) for name, spec in specs.items()})
with open(file, "wb") as to:
    pickle.dump({name: each.numpy() for name, each in served.items()}, to)
"""
LOAD = cache(tf.saved_model.load)


def alone(folder: str) -> Any:
    """Loads a serving model; its calls are answered by a process that has TensorFlow and not the project."""

    def signature(name: str) -> Any:
        def serve(**columns: Any) -> dict[str, Any]:
            file = Path(folder).parents[2] / "served.pickle"
            file.write_bytes(pickle.dumps({name: each.numpy() for name, each in columns.items()}))
            subprocess.run([sys.executable, "-c", SERVE, folder, name, file], check=True, cwd="/", timeout=300)
            served = pickle.loads(file.read_bytes())  # noqa: S301
            return {name: SimpleNamespace(numpy=lambda each=each: each) for name, each in served.items()}

        serve.structured_input_signature = loaded[name].structured_input_signature  # type: ignore[attr-defined]
        return serve

    loaded = LOAD(folder).signatures
    return SimpleNamespace(signatures={name: signature(name) for name in loaded})
