"""Training = serving, looked at again: raw rows through the serving model, and their stored records through the reader.

Both give the same model-ready values, bit for bit, with either engine of the reader; only pictures that are scaled when
they are read may differ by one level in the NumPy engine.

>>> check_parity(folder, manifest, plan, work, 64).checked["rows"]  # doctest: +SKIP
64
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph_inputs import input_specs
from recordmill.pipeline.build.plan import BuildPlan
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.reader.parsing.examples import parse
from recordmill.pipeline.verify.files import VersionFiles
from recordmill.pipeline.verify.findings import Findings, shown
from recordmill.pipeline.verify.graph_safety import check_graph
from recordmill.pipeline.verify.raw_rows import RawRows, sample_rows
from recordmill.pipeline.verify.stored_rows import StoredRow, StoredRows
from recordmill.transforms.contract.finish_options import SERVED
from recordmill.transforms.contract.ragged import RowError
from recordmill.transforms.contract.stored import part_name, stored_features
from recordmill.transforms.numpy.features import finish
from recordmill.transforms.tensorflow.features import parse as parse_in_tensorflow
from recordmill.transforms.tensorflow.serving import LENGTHS

NOT_CHECKED = "training = serving: "


def check_parity(folder: Path, manifest: Manifest, plan: BuildPlan, work: PlannedBuild, count: int) -> Findings:
    """Serves a sample of the sources' rows, reads their records, and compares.

    Args:
        folder: the version's, on this machine.
        manifest: its manifest.
        plan: of the spec, made now.
        work: of the plan, `inline`.
        count: how many rows, at most.
    """
    found = Findings()
    if plan.inputs_sha256 != manifest.provenance.get("inputs_sha256"):
        found.unchecked.append(f"{NOT_CHECKED}the inputs are not those of the build: files came, went or changed")
    elif any("packed" in one for one in manifest.features.values()):
        found.unchecked.append(f"{NOT_CHECKED}records of a packed text hold many rows")
    elif check_graph(VersionFiles(folder), manifest, "serving").problems:
        found.unchecked.append(f"{NOT_CHECKED}the serving model is damaged, and is not loaded")
    elif (batch := sample_rows(plan, work, count)) is None:
        found.unchecked.append(f"{NOT_CHECKED}no row could be read")
    else:
        _compare(found, folder, manifest, work, batch)
    return found


def _compare(found: Findings, folder: Path, manifest: Manifest, work: PlannedBuild, batch: RawRows) -> None:
    try:
        stored = _stored(found, folder, manifest, batch.keys)
    except (DatasetError, OSError, ValueError, AttributeError):  # named by the check of the file
        found.unchecked.append(f"{NOT_CHECKED}the file of rejects is damaged")
        return
    places = [place for place, row in enumerate(stored) if row is not None]
    rows = [row for row in stored if row is not None]
    if not rows:
        found.unchecked.append(f"{NOT_CHECKED}none of the sample's rows has a record")
        return
    served = _served(folder, manifest, work, batch.keep(places))
    if served is None:
        found.unchecked.append(f"{NOT_CHECKED}the spec's features are not those of the version")
        return
    found.checked.update(rows=len(rows))
    for engine, read in _read(manifest, [row.data for row in rows]):
        for name, values in served.items():
            same = _same(values, read[name], _tolerance(manifest, name) if engine == "NumPy" else 0.0)
            for place in np.flatnonzero(~same).tolist():
                row = rows[place]
                what = (
                    f"the serving model gives another '{name}' of its raw row than the reader ({engine}) of the record"
                )
                found.tell(row.file, what, row.record, row.offset)


def _stored(found: Findings, folder: Path, manifest: Manifest, keys: Sequence[bytes]) -> list[StoredRow | None]:
    """The record of each row; None where it has none, or several, or a reject has the same key."""
    rejected = _rejected(folder, manifest, {key.decode("utf-8", "replace") for key in keys})
    rows, stored = StoredRows(folder, manifest), list[StoredRow | None]()
    for key in keys:
        try:
            records = [] if key.decode("utf-8", "replace") in rejected else rows.find(key)
        except (RowError, DatasetError):  # named by the check of its shard
            stored.append(None)
            continue
        stored.append(records[0] if len(records) == 1 else None)
        if not records and key.decode("utf-8", "replace") not in rejected and not manifest.rows.get("duplicates"):
            found.tell(MANIFEST_FILE, f"the row {shown(key)} of the sources is neither stored nor rejected")
    return stored


def _rejected(folder: Path, manifest: Manifest, keys: set[str]) -> set[str]:
    """Those of some keys that the rejects hold."""
    found = set()
    for file in manifest.rejects.get("files", []):
        opened, _ = VersionFiles(folder).open(file["file"])
        with opened:
            found |= {id_ for line in opened if (id_ := json.loads(line).get("id")) in keys}
    return found


def _served(folder: Path, manifest: Manifest, work: PlannedBuild, batch: RawRows) -> dict[str, npt.NDArray[Any]] | None:
    """What the serving model gives of raw rows; None where it takes other columns."""
    model = tf.saved_model.load(str(folder / "serving"))
    signature = model.signatures["serving_default" if manifest.label is None else "with_label"]
    given: dict[str, Any] = {}
    for name, spec in input_specs(work).items():
        tensor = batch.tensor(name, spec)
        if isinstance(tensor, tf.RaggedTensor):
            given |= {name: tensor.values, part_name(name, LENGTHS): tensor.row_lengths()}
        else:
            given[name] = tensor
    if given.keys() != signature.structured_input_signature[1].keys():
        return None
    return {name: tensor.numpy() for name, tensor in signature(**given).items()}


def _read(manifest: Manifest, records: Sequence[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What each engine of the reader gives of records."""
    yield "NumPy", finish(manifest.features, parse(records, stored_features(manifest.features)), SERVED)
    read = parse_in_tensorflow(manifest.features, tf.constant(records))
    yield "TensorFlow", {name: tensor.numpy() for name, tensor in read.items()}


def _tolerance(manifest: Manifest, name: str) -> float:
    """How far values of the NumPy engine may be away: one level of a picture that is scaled when it is read."""
    description = manifest.features.get(name, {})
    return 1.001 * max(map(abs, description["scale"])) if description.get("encoding") == "original" else 0.0


def _same(served: npt.NDArray[Any], read: Any, tolerance: float) -> npt.NDArray[np.bool_]:
    """Whether each row has the same values: bool [rows]."""
    values = np.asarray(read)
    if served.shape != values.shape or served.dtype != values.dtype:
        return np.zeros(len(served), bool)
    if served.dtype == object:
        equal = served == values
    elif tolerance:
        equal = np.abs(served.astype(np.float64) - values.astype(np.float64)) <= tolerance
    else:
        equal = np.ascontiguousarray(served).view(np.uint8) == np.ascontiguousarray(values).view(np.uint8)
    return np.asarray(equal.reshape(len(served), -1).all(axis=1))
