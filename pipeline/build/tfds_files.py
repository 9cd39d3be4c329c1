"""The files that let TensorFlow Datasets open a version as it is: `tfds.builder_from_directory(folder)`.

`features.json` and one `<feature>.labels.txt` a category, as `tensorflow_datasets` 4.9 reads them. The third file that
it needs is `dataset_info.json` (`pipeline.dataset.catalogues`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset.paths import path_within
from recordmill.transforms.contract.kinds.base import UNKNOWN, Description, Stored, tfds_stored
from recordmill.transforms.contract.kinds.category import CategoryDescription
from recordmill.transforms.contract.stored import KEY, part_name


def write_tfds_files(folder: str, features: Mapping[str, Description], vocabularies: Mapping[str, list[str]]) -> None:
    """Writes the files."""
    into = Path(folder)
    _write_json(into / "features.json", _features(_parts(features)))
    for feature, description in features.items():
        if "classLabel" in description.tfds() and isinstance(description, CategoryDescription):
            names = [UNKNOWN] * (description.first_id or 0) + vocabularies[feature]
            path_within(into, f"{feature}.labels.txt").write_text("\n".join(names) + "\n", encoding="utf-8")


def _features(features: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {"features": {**features, KEY: tfds_stored(Stored("bytes"))}},
    }


def _parts(features: Mapping[str, Description]) -> dict[str, dict[str, Any]]:
    """Describes all parts of all features, by their names in a record."""
    parts: dict[str, dict[str, Any]] = {}
    for name, description in features.items():
        parts |= {part_name(name, part): tfds_stored(stored) for part, stored in description.parts().items()}
        parts[name] = description.tfds()
    return parts


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
