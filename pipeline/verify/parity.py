"""Training = serving: compares raw rows through the serving model with their stored records through both readers.

The model-ready values are equal bit for bit, except that the NumPy engine may differ by one level in an image scaled by
the reader.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from recordmill.pipeline.build.analysis.graph import complete
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import input_specs, install_user_code
from recordmill.pipeline.build.images.read import image_reader
from recordmill.pipeline.build.inputs.input_table import Listings, take_times
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.texts.encode import RowEncoder, graph_column
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.graphs import MODEL_FILE
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.remote import VersionFiles
from recordmill.pipeline.rows import StoredRow, find_records, rejects_of
from recordmill.pipeline.sources.files import StoreFiles
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.verify.files import PATTERN, Findings, Verification, check_graph, shown
from recordmill.transforms.base.description import argument_name
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import LENGTHS, SERVED, part_name, stored_features
from recordmill.transforms.engines.numpy_features import finish
from recordmill.transforms.engines.tensorflow_features import parse as parse_in_tensorflow
from recordmill.transforms.images.image_header import ImageError

NOT_CHECKED = "training = serving: "
CHUNKS = 8  # of about 8 MiB: a sample takes about a second, whatever the source's size


def with_parity(report: Verification, spec: Spec, rows: int) -> Verification:
    """Compares up to `rows` source rows; adds the findings to the report, of a version on this machine."""
    folder, files = Path(report.folder), Listings(StoreFiles(BeamFiles()))
    try:
        take_times(spec, folder, files)
        plan = make_plan(spec, files)
    except UserError as error:
        obstacle: str | None = str(error)
    else:
        with tempfile.TemporaryDirectory(prefix="recordmill-") as scratch:
            work = planned_build(plan, os.path.join(scratch, "run"), files.files, inline=True, threads=0)
            install_user_code(work)
            work = complete(work)
            obstacle = _compare_rows(report.findings, folder, report.manifest, plan, work, rows)
    if obstacle:
        report.findings.unchecked.append(f"{NOT_CHECKED}{obstacle}")
    return report


class RawRows(NamedTuple):
    """Rows in the form that the serving model takes."""

    keys: list[bytes]
    columns: dict[str, list[Any]]  # by feature: each row's value or list of values; an image is its bytes

    def keep(self, rows: Sequence[int]) -> "RawRows":
        """Keeps the rows at these positions."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return RawRows([self.keys[row] for row in rows], columns)

    def arguments(self, name: str, spec: tf.TypeSpec) -> dict[str, tf.Tensor]:
        """Returns a feature's inputs of the serving model: its values, and of lists their lengths."""
        values, argument = self.columns[name], argument_name(name)
        if not isinstance(spec, tf.RaggedTensorSpec):
            return {argument: tf.constant(values, spec.dtype, shape=[len(values)])}
        flat, lengths = list(chain.from_iterable(values)), tf.constant([*map(len, values)], tf.int64)
        return {argument: tf.constant(flat, spec.dtype, shape=[len(flat)]), part_name(argument, LENGTHS): lengths}


def _compare_rows(
    findings: Findings, folder: Path, manifest: Manifest, plan: BuildPlan, work: PlannedBuild, count: int
) -> str | None:
    """Adds the rows that differ to the findings; returns the reason if rows cannot be compared."""
    if plan.inputs_sha256 != manifest.provenance.get("inputs_sha256"):
        return "the inputs changed since the build: files were added, removed or modified"
    if any("packed" in description for description in manifest.features.values()):
        return "records of a packed text hold several rows each"
    if "[" in str(folder):
        return PATTERN
    if check_graph(VersionFiles(folder), manifest, "serving").problems:
        return "the serving model is damaged and was not loaded"
    if (batch := sample_rows(plan, work, count)) is None:
        return "no row could be read"
    try:
        stored = _stored(findings, folder, manifest, batch.keys, has_windows=work.windowed is not None)
    except DatasetError:  # reported by the check of the file
        return "the file of rejects is damaged"
    if not stored:
        return "none of the sample's rows has a record"
    try:
        served = _served(folder, manifest, work, batch.keep([*stored]))
    except tf.errors.InvalidArgumentError:
        findings.add(f"serving/{MODEL_FILE}", f"the model fails for the raw rows of {len(stored):,} records")
        return None
    if served is None:
        return "the spec's features differ from the version's"
    for name, text in work.texts().items():
        parts = ("", "length", LENGTHS) if text.kind == "texts" else text.library_parts
        if text.in_library and parts:  # ids alone do not give these
            why = f"the serving model takes ids of '{name}', one text a row, as they are stored"
            findings.unchecked.append(f"{NOT_CHECKED}{why}")
            made = {part_name(name, part) for part in parts}
            served = {output: values for output, values in served.items() if output not in made}
    rows = [*stored.values()]
    findings.checked.update(rows=len(rows))
    for engine, read in _read(manifest, [row.data for row in rows]):
        for name, values in served.items():
            described = manifest.features.get(name, {})
            is_scaled = engine == "NumPy" and described.get("encoding") == "original"  # by the reader: one level
            same = _same(values, read[name], 1.001 * max(map(abs, described["scale"])) if is_scaled else 0.0)
            message = f"'{name}' differs between the serving model (raw row) and the reader ({engine}, record)"
            for row in (rows[number] for number in np.flatnonzero(~same).tolist()):
                findings.add(row.file, message, row.record, row.offset)
    return None


def _stored(
    findings: Findings, folder: Path, manifest: Manifest, keys: Sequence[bytes], *, has_windows: bool
) -> dict[int, StoredRow]:
    """Maps row numbers to records, or first windows; skips rejected rows and keys of no row or of several."""
    ids = [key.decode("utf-8", "replace") for key in keys]
    known, stored = {*ids}, dict[int, StoredRow]()
    rejected = {id_ for reject in rejects_of(folder, manifest) if (id_ := reject.get("id")) in known}
    for number, (key, id_) in enumerate(zip(keys, ids, strict=True)):
        if id_ in rejected:
            continue
        try:
            records = find_records(folder, manifest, key)
        except DatasetError:  # reported by the check of the shard
            continue
        if len(records) == 1 or (has_windows and len({row.shard.file for row in records}) == 1):
            stored[number] = records[0]  # the serving model cuts a long text after its first window
        if not records and not manifest.rows.get("duplicates") and not manifest.rows.get("forgotten"):
            findings.add(MANIFEST_FILE, f"the source row {shown(key)} is neither stored nor rejected")
    return stored


def _served(folder: Path, manifest: Manifest, work: PlannedBuild, batch: RawRows) -> dict[str, npt.NDArray[Any]] | None:
    """Serves raw rows; None if the serving model expects other columns."""
    model = tf.saved_model.load(str(folder / "serving"))
    signature = model.signatures["serving_default" if manifest.label is None else "with_label"]
    columns: dict[str, Any] = {}
    for name, spec in input_specs(work).items():
        if not work.features[name].is_mask:  # a model predicts it
            columns |= batch.arguments(name, spec)
    if columns.keys() != signature.structured_input_signature[1].keys():
        return None
    return {name: tensor.numpy() for name, tensor in signature(**columns).items()}


def _read(manifest: Manifest, records: Sequence[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    described = read_descriptions(manifest.features)
    yield "NumPy", finish(described, parse(records, stored_features(described)), SERVED)
    read = parse_in_tensorflow(described, tf.constant(records))
    yield "TensorFlow", {name: tensor.numpy() for name, tensor in read.items()}


def _same(served: npt.NDArray[Any], read: Any, tolerance: float) -> npt.NDArray[np.bool_]:
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
    """Reads up to `count` good rows with images, of the smallest sample hashes in a few chunks; None without any."""
    chosen = sorted(plan.chunks, key=lambda chunk: hashlib.sha256(b"%d" % chunk.index).digest())[:CHUNKS]
    least: pa.Table | None = None
    for chunk in chosen:
        images, source = image_reader(work), work.readers[chunk.source]
        for block in source.read(chunk, work.files, work.schema.columns, work.schema.source_key):
            rows = key_rows(block, chunk, work.schema, work.layout, images.read)[0]
            both = rows if least is None else pa.concat_tables([least, rows])
            least = both.sort_by([("@sample", "ascending"), ("@key", "ascending")]).slice(0, count).combine_chunks()
    if least is None or not least.num_rows:
        return None
    rows = RowEncoder(work.features, work.learned, work.schema.named).good(least)
    columns = {name: graph_column(rows, name).to_pylist() for name in work.schema.features}
    loader, sources, good = image_reader(work), rows["@source"].to_pylist(), set(range(rows.num_rows))
    served = {name: each for name, each in work.images().items() if not each.is_mask}
    for name, options in served.items():
        for row, references in enumerate(columns[name]):
            try:
                data = [image.data for image in loader.load_all(sources[row], references, options)]
            except ImageError:
                good.discard(row)  # rejected, or unreadable now
                continue
            columns[name][row] = data if isinstance(references, list) else b"".join(data)
    return RawRows(rows["@key"].to_pylist(), columns).keep(sorted(good))
