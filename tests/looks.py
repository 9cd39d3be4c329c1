"""Looks at rows without Beam, and graphs of what was learned."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.impl_helper import analyze_in_place

from recordmill.pipeline.build.attempt import attempts
from recordmill.pipeline.build.plan.plan import make_plan, planned_build
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.summaries.look import Look, PartialSums, Sums, statistics_look
from recordmill.pipeline.build.worker.read_chunk import LookReader
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.sources.files import Files, LocalFiles
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.base.description import Learned
from recordmill.transforms.base.feature import Feature
from recordmill.transforms.engines.transform_graph import Preprocessing


def planned_look(
    folder: Path, spec: str, chunk_bytes: int = 1 << 20, files: Files | None = None, *, inline: bool = False
) -> tuple[Look, list[Chunk]]:
    """Gives the look that a spec learns from, in a new attempt's folder, and the chunks."""
    files = files or LocalFiles()
    plan = make_plan(parse_spec(spec), files, RunOptions(chunk_bytes=chunk_bytes))
    run = attempts.begin(str(folder), str(folder), plan.build_key, plan.pieces)
    planned = planned_build(plan, run.folder, files, inline=inline, threads=2)
    return statistics_look(planned), plan.chunks


def look_at(look: Look, chunks: Iterable[Chunk], workers: int = 1) -> Sums:
    """Looks at chunks as so many workers would; gives the reduced buckets."""
    sums = [PartialSums(look.summaries) for _ in range(workers)]
    reader, buckets = LookReader(look), dict[str, list[bytes]]()
    elements = [
        element for number, chunk in enumerate(chunks) for element in sums[number % workers].add(reader.read(chunk))
    ]
    for key, part in [*elements, *(element for worker in sums for element in worker.flush())]:
        buckets.setdefault(key, []).append(part)
    for key, parts in buckets.items():
        look.merge(key, parts)
    return look.finish()


def graph_of(
    features: Mapping[str, Feature],
    label: str,
    specs: Mapping[str, tf.TypeSpec],
    vocabularies: Mapping[str, Sequence[bytes]],
    statistics: Mapping[str, Any],
    folder: Path,
) -> tft.TFTransformOutput:
    """Makes the transform graph of features and what was learned."""
    paths = {name: folder / vocabulary_name(name) for name in vocabularies}
    for name, words in vocabularies.items():
        paths[name].write_bytes(b"".join(word + b"\n" for word in words))
    learned = {label: Learned(is_label=True)}
    preprocessing = Preprocessing(features, learned, {name: str(path) for name, path in paths.items()}, statistics)
    analyze_in_place(preprocessing, False, {}, dict(specs), str(folder / "export"))
    for path in paths.values():
        path.unlink()  # the graph has a copy
    return tft.TFTransformOutput(str(folder / "export"))


def asset(output: tft.TFTransformOutput, name: str) -> bytes:
    """Reads a file of words of a graph."""
    return Path(output.transform_savedmodel_dir, "assets", name).read_bytes()
