"""A forecast of a build: the plan that it would have, a sample of its rows, and what follows from both.

>>> forecast(load_spec("dataset.yaml"), LocalFiles()).warnings  # doctest: +SKIP
["the split 'test' is empty"]
"""

import math
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.free_space import NoSpaceError, check_free_space, scratch_bytes
from recordmill.pipeline.build.input_listing import Listings
from recordmill.pipeline.build.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.preparation import Published, prepare
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.cores import cores
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest, version_folder
from recordmill.pipeline.forecast.columns import ColumnView, views
from recordmill.pipeline.forecast.cost import BATCH_OVERHEAD, GET_BYTES, PART_BYTES, Cost, cost_of
from recordmill.pipeline.forecast.rate import Rate, rate_of_history, rate_of_sample, rate_of_trials
from recordmill.pipeline.forecast.sample import Sample, take_sample
from recordmill.pipeline.forecast.warnings import warnings_of
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.build_folders import building_folder
from recordmill.pipeline.versions.stores.open_store import is_local, open_location

PROCESS_BYTES = 1_200_000_000
"""The peak of a local build of photos or documents: `make bench ARGS="memory-text memory-images"`."""
PIXEL_BYTES = 12
"""Memory of an image while it is decoded, by pixel."""


@dataclass(frozen=True)
class SplitForecast:
    """A split of a build to be."""

    rows: int
    shards: int


@dataclass(frozen=True)
class Forecast:
    """The facts of a build to be. Sizes are in bytes."""

    name: str
    rows: int
    rows_are_exact: bool
    files: int
    source_bytes: int
    chunks: int
    splits: Mapping[str, SplitForecast]
    shard_bytes: int
    scratch_bytes: int
    free_bytes: int | None
    """The free space of the disk that the output lies on; None for a URL."""
    memory_bytes: int
    spans_read: tuple[str, ...]
    spans_kept: tuple[str, ...]
    sampled_rows: int
    sample_is_all: bool
    """Whether the sample holds every row."""
    columns: tuple[ColumnView, ...]
    rejects: Mapping[str, int]
    """The sampled rows that would be rejected, by reason."""
    image_rejects: Mapping[str, int]
    opened_images: int
    rate: Rate
    cost: Cost | None
    notes: tuple[str, ...]
    """Files and columns that nothing reads, and why."""
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Gives the forecast as JSON."""
        cost = self.cost._asdict() if self.cost else None
        columns = [{**asdict(view), "names": dict(view.names)} for view in self.columns]
        return {**asdict(self), "columns": columns, "cost": cost}


def forecast(
    spec: Spec,
    files: Files,
    output: str | None = None,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    prices: Mapping[str, Any] | None = None,
    *,
    measured: bool = False,
) -> Forecast | Manifest:
    """Plans a build, and looks at a sample of its rows; builds and writes nothing.

    Args:
        spec: the dataset.
        files: lists and opens the sources.
        output: the dataset's folder or URL, whose live version is compared with; None for a first build.
        options: those of the build.
        prices: as `deploy/prices.json` has them, for the cost on a cluster.
        measured: whether the time is that of trial builds in a scratch folder, which take half a minute or more.

    Returns:
        The forecast; the live version where a build would find nothing to do.

    Raises:
        SourceError, OutputError: as a build would.
    """
    live = None
    if output is None:
        plan = make_plan(spec, Listings(files), options.chunk_bytes, compact=options.compact)
    else:
        prepared = prepare(spec, output, options, files)
        if isinstance(prepared, Published):
            return prepared.manifest
        plan, live = prepared.plan, _live(output)
    folder = os.path.join(building_folder(output or ".", options.work), plan.build_key[:16], "run")
    planned = planned_build(plan, folder, files, inline=options.runner != "local", threads=1)
    rate = rate_of_trials(plan, options) if measured else None
    return _forecast(plan, planned, output, live, prices, rate)


def _live(output: str) -> tuple[Location, Manifest] | None:
    with suppress(DatasetError):  # the build itself says what is wrong
        live = publishing.live_manifest(output)
        return (version_folder(open_location(output), live.version), live) if live else None
    return None


def _forecast(
    plan: BuildPlan,
    planned: PlannedBuild,
    output: str | None,
    live: tuple[Location, Manifest] | None,
    prices: Mapping[str, Any] | None,
    rate: Rate | None,
) -> Forecast:
    sample = take_sample(plan, planned)
    columns = views(planned, sample)
    of_split = _rows_of_splits(plan, sample)
    if rate is None:
        rate = (output and rate_of_history(plan, output)) or rate_of_sample(plan, sample)
    scratch, no_space = _disk(plan, planned)
    return Forecast(
        name=plan.spec.name,
        rows=plan.rows,
        rows_are_exact=plan.rows_are_exact,
        files=sum(len(group.files) for group in plan.inputs),
        source_bytes=plan.source_bytes,
        chunks=len(plan.chunks),
        splits=_splits(plan, sample, of_split),
        shard_bytes=plan.expected_bytes,
        scratch_bytes=scratch,
        free_bytes=_free(output) if output is None or is_local(output) else None,
        memory_bytes=_memory(sample),
        spans_read=tuple(plan.spans.built),
        spans_kept=tuple(plan.spans.kept),
        sampled_rows=sample.rows,
        sample_is_all=sample.is_all,
        columns=tuple(columns),
        rejects=dict(Counter(reject.reason for reject in sample.rejects).most_common()),
        image_rejects=dict(sample.image_rejects.most_common()),
        opened_images=sum(len(images.headers) for images in sample.images.values()) + sample.image_rejects.total(),
        rate=rate,
        cost=_cost(plan, sample, rate, prices) if prices else None,
        notes=tuple(plan.notes),
        warnings=(*no_space, *warnings_of(plan, sample, columns, of_split, live)),
    )


def _rows_of_splits(plan: BuildPlan, sample: Sample) -> dict[str, int]:
    names = list(plan.spec.splits)
    numbers = np.concatenate([np.zeros(0, np.int64), *(table["@split"].to_numpy() for table in sample.tables)])
    return dict(zip(names, np.bincount(numbers, minlength=len(names)).tolist(), strict=True))


def _splits(plan: BuildPlan, sample: Sample, of_split: Mapping[str, int]) -> dict[str, SplitForecast]:
    scale = 1.0 if sample.is_all else max(1.0, plan.rows / max(1, sample.rows))  # of a guess there may be more rows
    return {name: SplitForecast(round(rows * scale), plan.layout.shards[name]) for name, rows in of_split.items()}


def _disk(plan: BuildPlan, planned: PlannedBuild) -> tuple[int, Sequence[str]]:
    """Gives the bytes of scratch that a local build needs beside the shards, and a warning where the disk is short."""
    try:
        note = check_free_space(plan, planned, kept=0)
    except NoSpaceError as error:
        note = str(error)
    return scratch_bytes(plan, planned), [note] if note else []


def _free(output: str | None) -> int:
    folder = Path(output or ".").absolute()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free


def _memory(sample: Sample) -> int:
    headers = [header for images in sample.images.values() for header in images.headers]
    largest = max((header.width * header.height for header in headers), default=0)
    return PROCESS_BYTES + cores() * largest * PIXEL_BYTES


def _cost(plan: BuildPlan, sample: Sample, rate: Rate, prices: Mapping[str, Any]) -> Cost:
    """Gives the cost on a cluster, by the CPU of `rate`."""
    good = max(1, sum(table.num_rows for table in sample.tables))
    shards, chunks = plan.layout.groups, len(plan.chunks)
    in_batch = max(1.0, plan.rows / max(1, chunks) / max(1, shards))
    shuffled = plan.rows * (sample.bytes / good + BATCH_OVERHEAD / in_batch)
    files = sum(len(group.files) for group in plan.inputs)
    reads = files + 2 * math.ceil(plan.source_bytes / GET_BYTES)
    writes = plan.expected_bytes / PART_BYTES + 5 * shards + 3 * chunks + files / 1000
    return cost_of(rate.cpu_seconds, shuffled, reads, writes, plan.expected_bytes, prices)
