"""Formats a forecast for a terminal."""

from collections.abc import Iterator, Mapping

from recordmill.pipeline.build.plan.free_space import size
from recordmill.pipeline.forecast.forecast import Forecast
from recordmill.pipeline.forecast.sample import ColumnView
from recordmill.pipeline.safe_text import count, cut

MINUTE, HOUR = 60, 3600


def lines_of(forecast: Forecast) -> Iterator[str]:
    """Describes a forecast; warnings come last, to be noticed."""
    rows = f"{'' if forecast.rows_are_exact else 'about '}{count(forecast.rows, 'row')}"
    yield f"{forecast.name}: {rows} of {count(forecast.files, 'file')}, {size(forecast.source_bytes)}"
    yield from (f"note: {note}" for note in forecast.notes)
    if forecast.spans_kept:
        yield f"spans: {len(forecast.spans_read):,} are read, {len(forecast.spans_kept):,} are kept"
    yield ""
    yield from _splits(forecast)
    yield ""
    yield from _columns(forecast)
    yield ""
    yield from _rejects(forecast)
    yield from _needs(forecast)
    if forecast.warnings:
        yield ""
        yield from (f"WARNING: {warning}" for warning in forecast.warnings)


def _splits(forecast: Forecast) -> Iterator[str]:
    width = max(map(len, forecast.splits))
    for name, split in forecast.splits.items():
        about = "" if forecast.sample_is_all else "about "
        yield f"  {name:<{width}}  {about}{split.rows:,} rows in {count(split.shards, 'shard')}"


def _columns(forecast: Forecast) -> Iterator[str]:
    which = "all" if forecast.sample_is_all else "a sample of"
    yield f"in {which} {forecast.sampled_rows:,} rows:"
    names = [cut(view.name) for view in forecast.columns]
    width = max(map(len, names), default=0)
    for name, view in zip(names, forecast.columns, strict=True):
        yield f"  {name:<{width}}  {', '.join(_facts(view))}"


def _facts(view: ColumnView) -> Iterator[str]:
    yield view.kind if view.column == view.name else f"{view.kind} of {cut(view.column)}"
    yield from view.facts
    if view.missing:
        yield f"{view.missing:.1%} missing"
    if view.examples:
        yield f"such as {' | '.join(view.examples)}"


def _rejects(forecast: Forecast) -> Iterator[str]:
    yield f"rejected: {_counts(forecast.rejects, forecast.sampled_rows, 'rows')}"
    if forecast.opened_images:
        yield f"rejected: {_counts(forecast.image_rejects, forecast.opened_images, 'opened images')}"


def _counts(rejects: Mapping[str, int], of: int, what: str) -> str:
    if not rejects:
        return f"none of {of:,} {what}"
    reasons = ", ".join(f"{rows:,} {reason}" for reason, rows in rejects.items())
    return f"{sum(rejects.values()):,} of {of:,} {what} ({reasons})"


def _needs(forecast: Forecast) -> Iterator[str]:
    free = "" if forecast.free_bytes is None else f"; {size(forecast.free_bytes)} are free"
    yield f"disk: about {size(forecast.shard_bytes)} of shards and {size(forecast.scratch_bytes)} of scratch{free}"
    yield f"memory: about {size(forecast.memory_bytes)}"
    if forecast.time is None:
        yield "time: unknown until a build of this output ends here; time a trial by `recordmill build --limit 1000`"
    else:
        yield f"time: about {duration(forecast.time.seconds)} ({forecast.time.how})"


def duration(seconds: float) -> str:
    """Formats a time.

    >>> duration(0.4), duration(75), duration(9000)
    ('1 s', '1 min 15 s', '2 h 30 min')
    """
    whole = max(1, round(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    return f"{whole // HOUR:,} h {whole % HOUR // MINUTE} min"
