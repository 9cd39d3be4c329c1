"""Sends sampled rows through a build's worker, to the encoded records, in this process: what it rejects, a build does.

The graph learns from these rows alone, unless the analysis is frozen: its ids and scales are not those of a build.
"""

import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from recordmill.pipeline.build.analysis import graph
from recordmill.pipeline.build.base.live_analysis import LiveAnalysis
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.images.read import Loaded, image_reader
from recordmill.pipeline.build.summaries.look import learned, statistics_look
from recordmill.pipeline.build.worker.batch import ImageBytes, ImageLoader, RowBatch
from recordmill.pipeline.build.worker.build_shard import ShardBuilder
from recordmill.pipeline.build.worker.shard_report import BuiltBatch, ShardTotals, Stored
from recordmill.pipeline.dataset.tfrecord import pack
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.forecast.sample import PackForecast, RowSample
from recordmill.pipeline.private_folder import private_temporary_files
from recordmill.pipeline.sources.batches import spread
from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.images.image_header import ImageError, read_header
from recordmill.transforms.images.mask_spec import Mask

ROWS, IMAGES = 2_048, 256  # rows to build, without images and with
MOST_BYTES = 4 << 20  # of rows without images: some seconds
MOST_PIXELS = 400_000_000  # some seconds: then it ends
SHOWN = 8  # classes


def rehearse(sample: RowSample, planned: PlannedBuild, frozen: LiveAnalysis | None) -> None:
    """Builds the first rows of keys, or some, evenly spread, and adds what it saw to the sample. Raises: UserError."""
    most = IMAGES if any(each.is_reference for each in planned.images().values()) else ROWS
    chosen = spread(sample.firsts, most)
    rows = pa.concat_tables(sample.tables).take([row for start in range(8) for row in chosen[start::8]])
    if most == ROWS:
        rows = rows.take(spread(range(len(rows)), max(1, len(rows) * MOST_BYTES // max(1, rows.nbytes))))
    with private_temporary_files(), tempfile.TemporaryDirectory(prefix="recordmill-plan-") as folder:
        planned = replace(planned, workspace=LocalStore(folder), scratch=os.path.join(folder, "scratch"))
        os.mkdir(planned.scratch)
        given = graph.complete(planned)
        try:
            context = _with_graph(given, rows, frozen, sample.notes)
        except UserError as error:
            if (sample.is_all and len(rows) == len(sample.firsts)) or not given.trained():
                raise
            sample.notes.append(f"only read, not built, since {len(rows):,} rows are too few to learn from: {error}")
            return
        _build(sample, context, rows)


def _with_graph(given: PlannedBuild, rows: pa.Table, frozen: LiveAnalysis | None, notes: list[str]) -> PlannedBuild:
    if frozen is None:
        look = statistics_look(given)
        found = learned(look, look.sums_of(rows))
    models = found.models if frozen is None else graph.frozen_models(given, frozen)
    context = graph.complete(given, models)
    install_user_code(context)
    if frozen is not None:
        return replace(context, export=graph.keep_graph(context, frozen))
    preprocessing = graph.make_preprocessing(context, found, context.scratch)
    try:
        return replace(context, export=graph.make_graph(context, preprocessing))
    except UserError:
        raise
    except Exception:  # `analyze_in_place` fails in several ways for analyzers
        if preprocessing.own is None or not graph.analyzed_columns(context, preprocessing):
            raise
        notes.append(f"{context.preprocessing} is not run: its analyzers read all rows")
        return replace(context, export=graph.make_graph(context, replace(preprocessing, own=None)))


def _build(sample: RowSample, context: PlannedBuild, rows: pa.Table) -> None:
    builder, totals = _Counting(context, sample), ShardTotals(context)
    for built in builder.built(rows, measured=0):
        totals.add(built)
        if sum(each.width * each.height for of in sample.headers.values() for each in of) > MOST_PIXELS:
            break
    counts = totals.counts
    written, sample.late, sample.counts = sum(counts.written_by_source.values()), totals.rejects, counts.statistics
    sample.built_rows = written + counts.rejected
    sample.records = None if counts.more_windows is None else written + counts.more_windows
    sample.contents |= {name: _words(sum(several, Counter[str]())) for name, several in builder.seen.items()}
    for each, lengths in zip(context.packs, totals.packed, strict=True):
        made = pack(np.concatenate(lengths), each.length, split=each.split)
        count = len(made.splits) - 1
        sample.packs.append(PackForecast(each.length, count, float(made.sizes.sum()) / max(1, count * each.length)))


class _ImageLoader(ImageLoader):
    """Notes the headers of files that it loads, of each row's first by feature."""

    def __init__(self, context: PlannedBuild, sample: RowSample) -> None:
        super().__init__(context, image_reader(context))
        self._headers = sample.headers

    def _load_row(self, *arguments: Any) -> dict[str, list[Loaded]] | Fault:
        loaded = super()._load_row(*arguments)
        for name, parts in () if isinstance(loaded, Fault) else loaded.items():
            with suppress(ImageError, IndexError):  # shapes and numbers have none, nor has a missing image
                self._headers[name].append(read_header(parts[0].source))
        return loaded


class _Counting(ShardBuilder):
    """Builds batches, and counts what is in them, by feature."""

    def __init__(self, context: PlannedBuild, sample: RowSample) -> None:
        super().__init__(context)
        self._loader = _ImageLoader(context, sample)
        self.seen = defaultdict[str, list[Counter[str]]](list)  # lists, as threads add to them

    def _built(self, batch: RowBatch, stored: Stored) -> BuiltBatch:
        for name, options in self._context.features.items():
            if isinstance(options, Mask):
                self.seen[name].append(_pixels(batch.images[name], options))
        return super()._built(batch, stored)


def _words(seen: Counter[str]) -> str:
    """Describes the pixels of masks."""
    total, named, more = max(1, seen.total()), seen.most_common(SHOWN), len(seen) - SHOWN
    return ", ".join([*(f"{pixels / total:.1%} {name}" for name, pixels in named), *[f"{more:,} more"] * (more > 0)])


def _pixels(masks: Sequence[ImageBytes], options: Mask) -> Counter[str]:
    names: Mapping[int | None, str] = {0: "background", **dict(options.named), options.ignore: "ignored"}
    found = Counter[str]()
    for data in filter(None, masks):
        assert isinstance(data, bytes)  # noqa: S101 - a row has one mask
        pixels = np.frombuffer(data, options.pixel) if options.store == "raw" else np.asarray(Image.open(BytesIO(data)))
        counts = np.bincount(pixels.ravel())
        for value in np.flatnonzero(counts).tolist():
            found[names.get(value, f"value {value}")] += int(counts[value])
    return found
