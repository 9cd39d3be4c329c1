"""The parts of `recordmill verify` that need the packages of a build: repairing, and comparing raw rows with records.

Training = serving: a raw row through the serving model and its stored record through either engine of the reader give
the same model-ready values, bit for bit; only images that are scaled when they are read may differ by one level in the
NumPy engine.

>>> report = with_sources(verify("out/emoji"), spec, rows=64, mend=True)  # doctest: +SKIP
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import input_specs, install_user_code
from recordmill.pipeline.build.images.read import image_reader, kept
from recordmill.pipeline.build.inputs.listings import Listings, take_times
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan
from recordmill.pipeline.build.plan.planned_build import planned_build
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.version_files import VersionFiles
from recordmill.pipeline.rows import StoredRow, find_records, read_reject_lines
from recordmill.pipeline.sources.files import StoreFiles
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.verify.files import check_graph
from recordmill.pipeline.verify.repair import repair
from recordmill.pipeline.verify.report import Findings, Verification, shown
from recordmill.pipeline.verify.verify import verify
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import argument_name
from recordmill.transforms.contract.stored import LENGTHS, SERVED, part_name, stored_features
from recordmill.transforms.numpy.features import finish
from recordmill.transforms.tensorflow.features import parse as parse_in_tensorflow
from recordmill.transforms.tensorflow.image import ImageError

NOT_CHECKED = "training = serving: "
CHUNKS = 8  # of some 8 MiB, so that a sample takes a second of a source of any size


def with_sources(report: Verification, spec: Spec | None, *, rows: int, mend: bool) -> Verification:
    """Completes the report of a verified version.

    Args:
        report: of a version in a local folder.
        spec: the dataset's; None if only indexes may need repair.
        rows: the largest number of raw rows to compare; 0 for none.
        mend: whether to repair what is damaged, and verify again.
    """
    folder = Path(report.folder)
    if mend and not report.is_whole:
        done = repair(folder, report.manifest, report.findings, spec)
        report = replace(verify(report.folder), repaired=done.files, unrepaired=done.reasons)
    if spec is None or not rows:
        return report
    report.findings.merge(_parity(folder, report.manifest, spec, rows))
    return report


def _parity(folder: Path, manifest: Manifest, spec: Spec, rows: int) -> Findings:
    files = Listings(StoreFiles(BeamFiles()))
    try:
        take_times(spec, folder, files)
        plan = make_plan(spec, files)
    except UserError as error:
        return Findings(unchecked=[f"{NOT_CHECKED}{error}"])
    with tempfile.TemporaryDirectory(prefix="recordmill-") as scratch:
        work = planned_build(plan, os.path.join(scratch, "run"), files.files, inline=True, threads=0)
        install_user_code(work)
        return check_parity(folder, manifest, plan, work, rows)


class RawRows(NamedTuple):
    """Rows in the form that the serving model takes."""

    keys: list[bytes]
    columns: dict[str, list[Any]]
    """By feature: each row's value or list of values; an image's value is its bytes."""

    def keep(self, rows: Sequence[int]) -> "RawRows":
        """Keeps the rows at these positions."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return RawRows([self.keys[row] for row in rows], columns)

    def tensor(self, name: str, spec: tf.TypeSpec) -> Any:
        """Returns a feature's values, of shape [rows] or ragged [rows, None]."""
        values = self.columns[name]
        if not isinstance(spec, tf.RaggedTensorSpec):
            return tf.constant(values, spec.dtype, shape=[len(values)])
        flat = list(chain.from_iterable(values))
        return tf.RaggedTensor.from_row_lengths(tf.constant(flat, spec.dtype, shape=[len(flat)]), [*map(len, values)])


def check_parity(folder: Path, manifest: Manifest, plan: BuildPlan, work: PlannedBuild, count: int) -> Findings:
    """Serves a sample of the sources' rows, reads their records, and compares.

    Args:
        folder: the version's, on this machine.
        manifest: its manifest.
        plan: of the spec, made now.
        work: of the plan, `inline`.
        count: the largest number of rows to compare.
    """
    findings = Findings()
    if obstacle := _compare_rows(findings, folder, manifest, plan, work, count):
        findings.unchecked.append(f"{NOT_CHECKED}{obstacle}")
    return findings


def _compare_rows(
    findings: Findings, folder: Path, manifest: Manifest, plan: BuildPlan, work: PlannedBuild, count: int
) -> str | None:
    """Adds the rows that differ to the findings; returns the reason where rows cannot be compared."""
    if plan.inputs_sha256 != manifest.provenance.get("inputs_sha256"):
        return "the inputs are not those of the build: files came, went or changed"
    if any("packed" in description for description in manifest.features.values()):
        return "records of a packed text hold many rows"
    if check_graph(VersionFiles(folder), manifest, "serving").problems:
        return "the serving model is damaged, and is not loaded"
    if (batch := sample_rows(plan, work, count)) is None:
        return "no row could be read"
    try:
        stored = _stored(findings, folder, manifest, batch.keys)
    except DatasetError:  # the check of the file names it
        return "the file of rejects is damaged"
    if not stored:
        return "none of the sample's rows has a record"
    served = _served(folder, manifest, work, batch.keep([*stored]))
    if served is None:
        return "the spec's features are not those of the version"
    rows = [*stored.values()]
    findings.checked.update(rows=len(rows))
    for engine, read in _read(manifest, [row.data for row in rows]):
        for name, values in served.items():
            same = _same(values, read[name], _tolerance(manifest, name) if engine == "NumPy" else 0.0)
            message = (
                f"the serving model gives another '{name}' of its raw row than the reader ({engine}) of the record"
            )
            for row in (rows[number] for number in np.flatnonzero(~same).tolist()):
                findings.add(row.file, message, row.record, row.offset)
    return None


def _stored(findings: Findings, folder: Path, manifest: Manifest, keys: Sequence[bytes]) -> dict[int, StoredRow]:
    """Finds the record of each row, by the row's number; leaves out rows with none, with several, or with a reject."""
    ids = [key.decode("utf-8", "replace") for key in keys]
    known, stored = {*ids}, {}
    lines = (line for file in manifest.rejects.get("files", []) for line in read_reject_lines(folder, file["file"]))
    rejected = {id_ for _, reject in lines if (id_ := reject.get("id")) in known}
    for number, (key, id_) in enumerate(zip(keys, ids, strict=True)):
        if id_ in rejected:
            continue
        try:
            records = find_records(folder, manifest, key)
        except DatasetError:  # the check of its shard names it
            continue
        if len(records) == 1:
            stored[number] = records[0]
        if not records and not manifest.rows.get("duplicates") and not manifest.rows.get("forgotten"):
            findings.add(MANIFEST_FILE, f"the row {shown(key)} of the sources is neither stored nor rejected")
    return stored


def _served(folder: Path, manifest: Manifest, work: PlannedBuild, batch: RawRows) -> dict[str, npt.NDArray[Any]] | None:
    """Serves raw rows; None if the serving model takes other columns."""
    model = tf.saved_model.load(str(folder / "serving"))
    signature = model.signatures["serving_default" if manifest.label is None else "with_label"]
    columns: dict[str, Any] = {}
    for name, spec in input_specs(work).items():
        tensor, argument = batch.tensor(name, spec), argument_name(name)
        if isinstance(tensor, tf.RaggedTensor):
            columns |= {argument: tensor.values, part_name(argument, LENGTHS): tensor.row_lengths()}
        else:
            columns[argument] = tensor
    if columns.keys() != signature.structured_input_signature[1].keys():
        return None
    return {name: tensor.numpy() for name, tensor in signature(**columns).items()}


def _read(manifest: Manifest, records: Sequence[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    described = read_descriptions(manifest.features)
    yield "NumPy", finish(described, parse(records, stored_features(described)), SERVED)
    read = parse_in_tensorflow(described, tf.constant(records))
    yield "TensorFlow", {name: tensor.numpy() for name, tensor in read.items()}


def _tolerance(manifest: Manifest, name: str) -> float:
    """Returns the NumPy engine's largest difference: one level of an image that is scaled when it is read."""
    description = manifest.features.get(name, {})
    return 1.001 * max(map(abs, description["scale"])) if description.get("encoding") == "original" else 0.0


def _same(served: npt.NDArray[Any], read: Any, tolerance: float) -> npt.NDArray[np.bool_]:
    """Compares the values of each row: bool [rows]."""
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


def sample_rows(plan: BuildPlan, work: PlannedBuild, count: int) -> RawRows | None:
    """Returns rows with their images: those with the smallest sample hash in the chunks that a hash chooses.

    Args:
        plan: of the build; its chunks are read.
        work: with `inline`, so that images inside rows stay there.
        count: the largest number of rows.

    Returns:
        the rows without those that a build would reject; fewer if there are no more, None if there are none.
    """
    chosen = sorted(plan.chunks, key=lambda chunk: hashlib.sha256(b"%d" % chunk.index).digest())[:CHUNKS]
    least: pa.Table | None = None
    for rows in (rows for chunk in chosen for rows in _read_chunk(work, chunk)):
        both = rows if least is None else pa.concat_tables([least, rows])
        least = both.sort_by([("@sample", "ascending"), ("@key", "ascending")]).slice(0, count).combine_chunks()
    return None if least is None or not least.num_rows else _with_images(work, least)


def _read_chunk(work: PlannedBuild, chunk: Chunk) -> Iterator[pa.Table]:
    images, source = image_reader(work), work.readers[chunk.source]
    for block in source.read(chunk, work.files, work.schema.columns, work.schema.source_key):
        yield key_rows(block, chunk, work.schema, work.layout, images.read)[0]


def _with_images(work: PlannedBuild, rows: pa.Table) -> RawRows:
    columns = {name: rows[name].to_pylist() for name in work.schema.features}
    loader, sources, good = image_reader(work), rows["@source"].to_pylist(), set(range(rows.num_rows))
    for name, options in work.images().items():
        for row, references in enumerate(columns[name]):
            try:
                data = [loader.load(sources[row], image, options).data for image in kept(references, options)]
            except ImageError:
                good.discard(row)  # a reject, or unreadable now: nothing to compare
                continue
            columns[name][row] = data if isinstance(references, list) else b"".join(data)
    return RawRows(rows["@key"].to_pylist(), columns).keep(sorted(good))
