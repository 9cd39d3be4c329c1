"""The spec as a version's manifest holds it: nothing that is published names a place on the machine that built it."""

import os
from typing import Any

from recordmill.pipeline.safe_text import public_url
from recordmill.pipeline.sources.options import PATHS
from recordmill.pipeline.spec.model import Spec


def published_path(path: str) -> str:
    """A source's path without private parts: a URL without password and query, or the last part of a local path."""
    return public_url(path) if "://" in path else os.path.basename(path.rstrip("/"))


def published_spec(spec: Spec) -> dict[str, Any]:
    """The spec without the folders of the machine that built it."""
    published = spec.model_dump(mode="json")
    for source in published["source"]:
        source |= {name: published_path(source[name]) for name in PATHS if source.get(name)}
        if source["format"] == "python":  # a function's options may be secret
            source |= {"options": dict.fromkeys(source["options"]), "inputs": [*map(published_path, source["inputs"])]}
    for name, feature in spec.features.items():
        published["features"][name] |= {option: published_path(path) for option, path in feature.files().items()}
    return published
