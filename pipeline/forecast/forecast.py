"""A forecast of a build: its plan, a sample of its rows, and warnings to read before."""

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from recordmill.pipeline.build.attempt.failures import RejectPlaces
from recordmill.pipeline.build.build import source_files
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.build.journal import DRY_RUN
from recordmill.pipeline.build.plan.plan import BuildPlan, check_free_space, make_plan, planned_build, size
from recordmill.pipeline.build.plan.under_way import Build
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.compare.versions import compare_ids, first_few, ids_of
from recordmill.pipeline.dataset.counts import FILTERED, counted_as
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.forecast.sample import ColumnView, PackForecast, RowSample, take_sample, view_of
from recordmill.pipeline.parallel import cores
from recordmill.pipeline.safe_text import count, cut
from recordmill.pipeline.sources.faults import DUPLICATE
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.spec.model import Spec, load_spec
from recordmill.pipeline.versions import build_folders, history, publishing
from recordmill.pipeline.versions.stores.open_store import is_local
from recordmill.transforms.base import kinds
from recordmill.transforms.images import image_facts
from recordmill.transforms.texts import text_spec as text
from recordmill.transforms.values.category_spec import NamedClasses

PROCESS_BYTES = 1_200_000_000
"""The peak of a local build of photos or documents: `make bench ARGS="memory-text memory-images"`."""


@dataclass(frozen=True)
class SplitForecast:
    """A split of the forecast build."""

    rows: int
    shards: int


@dataclass(frozen=True)
class BuildTime:
    """A build's time, estimated from an earlier one."""

    seconds: float
    how: str


@dataclass(frozen=True)
class Forecast:
    """Facts of the forecast build. Sizes are in bytes."""

    name: str
    rows: int
    rows_are_exact: bool
    files: int
    source_bytes: int
    chunks: int
    splits: Mapping[str, SplitForecast]
    shard_bytes: int
    scratch_bytes: int
    free_bytes: int | None  # on the output's disk; None for a URL
    memory_bytes: int
    spans_read: tuple[str, ...]
    spans_kept: tuple[str, ...]
    sampled_rows: int
    sample_is_all: bool
    columns: tuple[ColumnView, ...]
    rejects: Mapping[str, int]  # rejected rows of the sample, by reason
    built_rows: int  # rows of the sample that were built, too
    built_rejects: Mapping[str, int] | None  # of these; None if all good rows were built: then in `rejects`
    records: int | None  # of documents in windows, estimated
    packs: tuple[PackForecast, ...]
    time: BuildTime | None  # None without an earlier build of all rows of this output on this machine
    notes: tuple[str, ...]  # unread files and columns, with reasons
    warnings: tuple[str, ...]
    exit_code: ExitCode  # the build's exit status, as far as the sample shows

    def to_json(self) -> dict[str, Any]:
        """Returns the forecast as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Returns the lines that `recordmill plan` prints."""
        return "\n".join(lines_of(self))


def plan(
    spec: Spec | str | Path,
    output: str | Path | None = None,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
) -> Forecast | Manifest:
    """Says what a build would read, reject and write, as `recordmill plan`: `print(plan("dataset.yaml", "out"))`.

    Returns a forecast, or the live version's manifest if nothing has changed.
    Raises: SpecError, SourceError, OutputError: as a build would.
    """
    parsed = spec if isinstance(spec, Spec) else load_spec(spec)
    return forecast(parsed, source_files(options.beam_options), None if output is None else str(output), options)


def forecast(
    spec: Spec,
    files: Files,
    output: str | None = None,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
) -> Forecast | Manifest:
    """Plans a build, and samples its rows; writes nothing. Returns the live version if it is up to date.

    `output` is the dataset's folder or URL, to compare with its live version; None for a first build.
    Raises: SourceError, OutputError: as a build would.
    """
    live = None
    if output is None:
        plan = make_plan(spec, Listings(files), options)
    else:
        publishing.check_output(output)
        build = Build(spec, output, Listings(files), options)
        if build.done:
            return build.done.manifest
        plan = build.plan()
        live = (build.base.folder, build.base.live) if build.base.live else None
    folder = os.path.join(build_folders.building_folder(output or ".", options.work), plan.build_key[:16], "run")
    inline, isolated = options.runner != "local", options.isolated
    planned = planned_build(plan, folder, files, inline=inline, threads=cores(), isolated=isolated)
    sample = take_sample(plan, planned)
    if sample.good:
        from recordmill.pipeline.forecast.rehearsal import rehearse  # four seconds of CPU

        rehearse(sample, planned, plan.frozen)
    return _forecast(plan, planned, sample, output, live)


def _forecast(
    plan: BuildPlan,
    planned: PlannedBuild,
    sample: RowSample,
    output: str | None,
    live: tuple[Location, Manifest] | None,
) -> Forecast:
    columns = [view_of(name, planned, sample) for name in planned.schema.features]
    of_split = sample.of_split([*plan.spec.splits])
    failures = [*_space(plan, planned, output), *_endings(plan, sample, of_split)]
    warnings = [*_row_warnings(plan.spec, sample, of_split, columns), *(_id_warnings(plan.spec, *live) if live else ())]
    free = None
    if output is None or is_local(output):
        folder = Path(output or ".").absolute()
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
    largest = max((each.width * each.height for each in chain.from_iterable(sample.headers.values())), default=0)
    scale = 1.0 if sample.is_all else max(1.0, plan.rows / max(1, sample.rows))  # the sample may exceed a guess
    of_all = scale * len(sample.firsts) / max(1, sample.built_rows)
    rejects, late = (Counter(counted_as(r.reason, r.message) for r in each) for each in (sample.rejects, sample.late))
    is_built = sample.built_rows == len(sample.firsts)
    processes = plan.processes + (plan.processes > 1)  # several workers have a driver beside them
    rejects = rejects + Counter({DUPLICATE: sample.repeated}) + (late if is_built else Counter())
    return Forecast(
        name=plan.spec.name,
        rows=plan.rows,
        rows_are_exact=plan.rows_are_exact,
        files=sum(len(group.files) for group in plan.inputs),
        source_bytes=plan.source_bytes,
        chunks=len(plan.chunks),
        splits={name: SplitForecast(round(n * scale), plan.layout.shards[name]) for name, n in of_split.items()},
        shard_bytes=plan.expected_bytes,
        scratch_bytes=0 if planned.inline else plan.scratch_bytes,
        free_bytes=free,
        memory_bytes=processes * PROCESS_BYTES + cores() * largest * 12,  # bytes a pixel while decoding
        spans_read=tuple(plan.spans.built),
        spans_kept=tuple(plan.spans.kept),
        sampled_rows=sample.rows,
        sample_is_all=sample.is_all,
        columns=tuple(columns),
        rejects=dict(rejects.most_common()),
        built_rows=sample.built_rows,
        built_rejects=None if is_built else dict(late.most_common()),
        records=None if sample.records is None else round(sample.records * of_all),
        packs=tuple(replace(each, rows=round(each.rows * of_all)) for each in sample.packs),
        time=None if output is None else _time(plan, output),
        notes=(*plan.notes, *sample.notes),
        warnings=(*(text for text, _ in failures), *warnings),
        exit_code=next((code for _, code in failures if code), ExitCode.PUBLISHED),
    )


def _time(plan: BuildPlan, output: str) -> BuildTime | None:
    """Scales the time of this output's latest build on this machine that read and wrote all rows in one attempt."""
    time, left = None, dict[str | None, bool]()
    for entry in history.read_history(output):
        is_here = entry.get("host") == os.uname().nodename and entry.get("runner") == "local"
        is_whole = entry.get("end") == "published" and entry.get("stages", {}).get("write") and not entry.get("spans")
        rows, seconds, key = entry.get("rows", {}).get("read"), entry.get("seconds"), entry.get("build_key")
        if is_here and is_whole and rows and seconds and not left.get(key):
            how = f"the build of {entry.get('ended_at')} on this machine: {rows:,} rows in {seconds:,.0f} s"
            time = BuildTime(plan.rows / rows * seconds, how)
        if entry.get("end") != DRY_RUN:  # these ends may leave work for the next build
            left[key] = entry.get("end") in (history.RUNNING, history.KILLED, history.STOPPED, history.FAILED)
    return time


def _space(plan: BuildPlan, planned: PlannedBuild, output: str | None) -> Iterator[tuple[str, ExitCode]]:
    try:
        run, holds_shards = os.path.dirname(planned.scratch), output is None or is_local(output)
        if note := check_free_space(plan, run, holds_shards=holds_shards, holds_rows=not planned.inline):
            yield note, ExitCode.PUBLISHED
    except UserError as error:
        yield str(error), error.exit_code


def _endings(plan: BuildPlan, sample: RowSample, of_split: Mapping[str, int]) -> Iterator[tuple[str, ExitCode]]:
    """Yields reasons to fail at the end of a build, in the order of its checks, with its exit status."""
    limit, again, rows = plan.spec.rejects.max_share, plan.spec.rejects.duplicate_share, max(1, sample.rows)
    late = len(sample.late) / max(1, sample.built_rows) * len(sample.firsts)
    bad = [reject for reject in sample.rejects if reject.reason != FILTERED]
    share, repeated = (len(bad) + late) / rows, sample.repeated / rows
    if limit is not None and share > limit:
        such = RejectPlaces(plan, [None] * len(plan.chunks)).example([*bad, *sample.late][0])
        ends = f"`rejects: {{max_share: {limit:g}}}` ends the build; such as {such}"
        yield f"{share:.1%} of the rows would be rejected, and {ends}", ExitCode.REJECTS
    if again is not None and repeated > again:
        ends = f"`rejects: {{max_duplicate_share: {again:g}}}` ends the build"
        yield f"{repeated:.1%} of the rows repeat a key, and {ends}", ExitCode.REJECTS
    if sample.rows and (not sample.good or 0 < sample.built_rows == len(sample.late)):
        yield "every row of the sample is rejected: nothing would be built", ExitCode.ERROR
    elif sample.rows and sample.is_all and not of_split["train"] and not plan.spans.kept:
        yield "no row is in 'train': nothing would be built", ExitCode.ERROR


def _row_warnings(
    spec: Spec, sample: RowSample, of_split: Mapping[str, int], columns: Sequence[ColumnView]
) -> Iterator[str]:
    for name, number in of_split.items():
        if not number and sample.good >= (1 if sample.is_all else 1_000):
            yield f"the split '{name}' is empty" + ("" if sample.is_all else f" in a sample of {sample.good:,} rows")
    doubled = {place: rows for place, rows in Counter(sample.places()).items() if rows > 1}
    if doubled:
        (_, key), rows = next(iter(doubled.items()))
        shown = key.decode("utf-8", "replace")
        several = f"{len(doubled):,} key{'s' * (len(doubled) > 1)} of several rows, such as '{shown}' in {rows:,}"
        yield f"{several}: all but the first are rejected"
    for view in columns:
        yield from (f"'{view.name}': {line}" for line in image_facts.loss_lines(view.losses))
        if view.missing == 1 and sample.rows:
            yield f"'{view.name}' is missing in all rows" + ("" if sample.is_all else " of the sample")
        elif view.name == spec.label and view.names:
            largest, rows = next(iter(view.names.items()))
            share = rows / sum(view.names.values())
            if len(view.names) == 1:
                yield f"the label '{view.name}' has one class alone, '{largest}'"
            elif share > 0.99:  # little is left to learn
                yield f"{share:.1%} of the rows are of one class, '{largest}'"


def _id_warnings(spec: Spec, folder: Location, live: Manifest) -> Iterator[str]:
    """Warns of features with ids that may differ from the live version's."""
    for name, feature in spec.features.items():
        if name not in live.features or live.features[name]["kind"] != feature.kind:
            continue
        if isinstance(feature, NamedClasses) and feature.classes == "fresh":
            yield f"'{name}': `classes: fresh` may give names other ids than {live.version} has"
        elif isinstance(feature, NamedClasses) and not feature.analyzed:
            if (given := feature.with_classes().given_classes) is None:
                continue
            now = dict(zip(given, itertools.count(0 if name == spec.label else 1 + feature.oov_buckets)))
            _, lost, moved = compare_ids(ids_of(folder, kinds.read_description(live.features[name]), name), now)
            if moved:
                yield f"'{name}': {len(moved):,} names get other ids than {live.version} has{first_few(moved)}"
            if lost:
                yield f"'{name}': {len(lost):,} names of {live.version} get no id{first_few(lost)}"
        elif isinstance(feature, text.Tokenized) and feature.analyzed and not spec.is_frozen:
            yield f"'{name}': its words are learned again, and their ids may move; `analysis: frozen` keeps them"


def lines_of(forecast: Forecast) -> Iterator[str]:
    """Describes a forecast; warnings come last, to be noticed."""
    rows = f"{'' if forecast.rows_are_exact else 'about '}{count(forecast.rows, 'row')}"
    yield f"{forecast.name}: {rows} of {count(forecast.files, 'file')}, {size(forecast.source_bytes)}"
    yield from (f"note: {note}" for note in forecast.notes)
    if forecast.spans_kept:
        yield f"spans: {len(forecast.spans_read):,} are read, {len(forecast.spans_kept):,} are kept"
    yield ""
    width = max(map(len, forecast.splits))
    for name, split in forecast.splits.items():
        about = "" if forecast.sample_is_all else "about "
        yield f"  {name:<{width}}  {about}{split.rows:,} rows in {count(split.shards, 'shard')}"
    if forecast.records is not None:
        yield f"windows: about {count(forecast.records, 'record')}"
    for pack in forecast.packs:
        yield f"packed: about {count(pack.rows, 'row')} of {pack.length:,} ids, {pack.filled:.0%} filled"
    which = "all" if forecast.sample_is_all else "a sample of"
    yield from ("", f"in {which} {forecast.sampled_rows:,} rows:")
    names = [cut(view.name) for view in forecast.columns]
    width = max(map(len, names), default=0)
    yield from (f"  {name:<{width}}  {view}" for name, view in zip(names, forecast.columns, strict=True))
    yield from ("", *_rejects(forecast))
    free = "" if forecast.free_bytes is None else f"; {size(forecast.free_bytes)} are free"
    yield f"disk: about {size(forecast.shard_bytes)} of shards and {size(forecast.scratch_bytes)} of scratch{free}"
    yield f"memory: about {size(forecast.memory_bytes)}"
    if forecast.time is None:
        yield "time: unknown until a build of this output ends here; time a trial by `recordmill build --limit 1000`"
    else:
        yield f"time: about {duration(forecast.time.seconds)} ({forecast.time.how})"
    yield from ["", *_warnings(forecast)] if forecast.warnings else []


def reject_lines(forecast: Forecast | Manifest) -> Iterator[str]:
    """Describes the rejects alone, with the warnings."""
    if isinstance(forecast, Forecast):
        yield from (*_rejects(forecast), *_warnings(forecast))


def _warnings(forecast: Forecast) -> Iterator[str]:
    return (f"WARNING: {warning}" for warning in forecast.warnings)


def _rejects(forecast: Forecast) -> Iterator[str]:
    counts = [(forecast.rejects, f"{forecast.sampled_rows:,} rows")]
    if forecast.built_rejects is not None:
        counts.append((forecast.built_rejects, f"{forecast.built_rows:,} rows that were built"))
    for rejects, of in counts:
        reasons = ", ".join(f"{rows:,} {reason}" for reason, rows in rejects.items())
        yield f"rejected: {sum(rejects.values()):,} of {of} ({reasons})" if rejects else f"rejected: none of {of}"


def duration(seconds: float) -> str:
    """Formats a time.

    >>> duration(0.4), duration(75), duration(9000)
    ('1 s', '1 min 15 s', '2 h 30 min')
    """
    whole = max(1, round(seconds))
    minutes = whole // 60
    if minutes < 1:
        return f"{whole} s"
    return f"{minutes} min {whole % 60} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
