"""The look at all rows for a build to learn from: its files, the work on them, and the result of its summaries.

look/statistics/chunk-000012.arrow               the sums of a chunk: its commit, kept by later attempts
look/statistics/chunk-000012.<random>.jsonl      rejects of rows that another attempt may be able to read
look/statistics/moments/bucket-003.arrow         one bucket of one summary, added up over all chunks
look/statistics/moments/reduced-003.arrow        the driver's part of it
look/statistics/spans/2026-11-20/moments/bucket-003.arrow    one bucket of one span's chunks
look/statistics/done.arrow                       the reduced buckets, read by the driver: the look's commit

With spans, the chunks of each are added up first, then all spans, including those kept from the live version.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.analysis.graph import LearnedAnalysis
from recordmill.pipeline.build.base.live_analysis import SUMMARIES, LiveAnalysis
from recordmill.pipeline.build.context.arrow_files import of_bytes, split, to_bytes
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import chunk_step
from recordmill.pipeline.build.summaries.numbers import Moments, PixelSums, Quantiles
from recordmill.pipeline.build.summaries.summary import Summary, add_tables, add_up, fold_of, of_file, to_file
from recordmill.pipeline.build.summaries.words import TokenizerWords, Vocabularies
from recordmill.pipeline.compare.distributions import statistics_drift
from recordmill.pipeline.dataset.arrow_tables import read_table
from recordmill.pipeline.dataset.counts import Counts, Fold
from recordmill.pipeline.dataset.file_names import SPANS
from recordmill.pipeline.dataset.paths import read_checked
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.open_store import open_location, open_store

FLUSH_ROWS = 250_000  # distinct rows of sums that a worker keeps before it passes them on: some 25 MB
FULL = re.compile(r"(?<![^/])([^/]++)/bucket-(\d{3})\.arrow$")
REDUCED = re.compile(r"(?<![^/])([^/]++)/reduced-(\d+)\.arrow$")
Sums = Mapping[str, pa.Table]  # a table for each summary with rows, by its name
FOLDER = "look/statistics"  # in the workspace
DONE = "done"
MEASURED = (Moments, Quantiles, PixelSums)
"""The summaries of numbers and images; their results are statistics by feature."""


@dataclass(frozen=True)
class KeptSums:
    """The full buckets of kept spans, as files of the live version."""

    folder: str  # the version's folder, absolute for workers elsewhere, or its URL
    files: Mapping[str, str]  # their SHA-256 in hexadecimal, by path
    count: bool  # whether the driver learns from these rows, too, or only from those read

    def keys(self) -> list[str]:
        """Lists the buckets, `<summary>/<bucket>`."""
        return list(dict.fromkeys(map(_key_of, self.files)))

    def tables(self, key: str) -> Iterator[pa.Table]:
        """Reads the tables of a bucket. Raises: DatasetError: one differs from the version's manifest."""
        for file in (file for file in self.files if _key_of(file) == key):
            folder = open_location(self.folder)
            yield read_table(folder, file, read_checked(folder, file, self.files[file]))


@dataclass(frozen=True)
class Look:
    """A look, as sent to its workers."""

    planned: PlannedBuild
    summaries: Sequence[Summary[Any]]
    kept: KeptSums | None = None  # the sums of kept spans

    def read_sums(self, chunk: Chunk) -> Sums | None:
        """Reads an earlier attempt's sums of a chunk; None if missing or damaged."""
        return of_file(self.planned.workspace.read(_file(chunk_step(chunk.index))), self._subject(chunk))

    def write_sums(self, chunk: Chunk, sums: Sums) -> None:
        self.planned.workspace.write(_file(chunk_step(chunk.index)), to_file(sums, self._subject(chunk)))

    def _subject(self, chunk: Chunk) -> str:
        names = [summary.name for summary in self.summaries]
        return repr((names, chunk.index, chunk.source, chunk.file, chunk.bytes))

    def merge(self, key: str, parts: Iterable[bytes]) -> None:
        """Adds up a bucket of all rows, `<summary>/<bucket>`; writes it and its reduced form."""
        summary = self._summary(key)
        self._write_reduced(key, summary, self._write(key, add_tables(summary, map(of_bytes, parts))))

    def merge_span(self, key: str, parts: Iterable[bytes]) -> tuple[str, str]:
        """Adds up a bucket of a span, `<span>/<summary>/<bucket>`; writes it; returns the bucket and the span."""
        span, bucket = key.split("/", 1)
        self._write(f"{SPANS}/{key}", add_tables(self._summary(bucket), map(of_bytes, parts)))
        return bucket, span

    def add_up(self, key: str, spans: Iterable[str | None]) -> None:
        """Adds up a bucket of the read and the kept spans; writes it as `merge`."""
        summary, kept = self._summary(key), self.kept.tables(key) if self.kept else ()
        keys = (f"{SPANS}/{span}/{key}" for span in sorted(filter(None, spans)))
        read = add_tables(summary, (self._read(_file(_bucket(each)), each) for each in keys))
        whole = self._write(key, add_tables(summary, [*([read] if read else []), *kept]))
        learned = whole if not summary.of_read_rows and (self.kept is None or self.kept.count) else read
        if learned is not None:
            self._write_reduced(key, summary, learned)

    def _summary(self, key: str) -> Summary[Any]:
        return next(summary for summary in self.summaries if summary.name == key.split("/")[-2])

    def _read(self, file: str, key: str) -> pa.Table:
        tables = of_file(self.planned.workspace.read(file), key)
        assert tables is not None, file  # noqa: S101 - the step before has written it
        return tables[key.split("/")[-2]]

    def _write(self, key: str, table: pa.Table | None) -> pa.Table:
        assert table is not None, key  # noqa: S101 - a bucket has a part
        table = _sorted(table)
        self.planned.workspace.write(_file(_bucket(key)), to_file({key.split("/")[-2]: table}, key))
        return table

    def _write_reduced(self, key: str, summary: Summary[Any], table: pa.Table) -> None:
        name, bucket = key.split("/")
        file = to_file({name: summary.reduce(table)}, key)
        self.planned.workspace.write(_file(f"{name}/reduced-{bucket}"), file)

    def read_done(self) -> Sums | None:
        """Reads the reduced buckets of a finished look, by summary and bucket; None if it is unfinished."""
        return of_file(self.planned.workspace.read(_file(DONE)), DONE)

    def finish(self) -> Sums:
        """Reads the reduced buckets after the look's job, and commits it."""
        files = sorted(self.planned.workspace.sizes(FOLDER))
        keys = {file: "/".join(match.groups()) for file in files if (match := REDUCED.search(file))}
        done = {key: self._read(file, key) for file, key in keys.items()}
        self.planned.workspace.write(_file(DONE), to_file(done, DONE))
        return done

    def sums_of(self, rows: pa.Table) -> Sums:
        """Looks at keyed rows in memory; returns the reduced buckets, as `finish` does those of all rows."""
        done = dict[str, pa.Table]()
        for summary in self.summaries:
            summary.prepare()
            parts = (rows.slice(start, summary.rows_at_once) for start in range(0, len(rows), summary.rows_at_once))
            if (table := add_tables(summary, (summary.of_rows(part, []) for part in parts))) is not None:
                done[f"{summary.name}/000"] = summary.reduce(_sorted(table))
        return done

    def result(self, name: str, done: Sums, default: Any = None) -> Any:
        """Returns the result of one summary; the default if the look has none of this name."""
        tables = [table for key, table in done.items() if key.partition("/")[0] == name]
        return next((each.result(tables) for each in self.summaries if each.name == name), default)


def full_buckets(workspace: Store) -> Iterator[tuple[str, bytes]]:
    """Yields the finished look's buckets as Arrow streams, with their paths in a version."""
    names = [name for name in sorted(workspace.names(FOLDER)) if FULL.search(name)]
    for name, data in workspace.read_all(names):
        *span, summary, file = name.removeprefix(f"{FOLDER}/").split("/")
        tables = of_file(data, "/".join([*span, _key_of(name)]))
        assert tables is not None, name  # noqa: S101 - the look is committed
        yield "/".join([*span, SUMMARIES, summary, file]), to_bytes(tables[summary])


def _sorted(table: pa.Table) -> pa.Table:
    """Sorts by all columns: the same bytes again."""
    return table.sort_by([(column, "ascending") for column in table.column_names])


def _key_of(file: str) -> str:
    match = FULL.search(file)
    assert match is not None, file  # noqa: S101 - a full bucket's
    return "/".join(match.groups())


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.arrow"


def _bucket(key: str) -> str:
    return "/bucket-".join(key.rsplit("/", 1))


class PartialSums:
    """Sums of a worker's chunks, passed on in buckets: few and small."""

    def __init__(self, summaries: Sequence[Summary[Any]]) -> None:
        self._summaries = {summary.name: summary for summary in summaries}
        self._folds = dict[tuple[str | None, str], Fold[pa.Table]]()

    def add(self, sums: Sums, span: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Adds the sums of a span's chunk; yields as `flush` after `FLUSH_ROWS` distinct rows."""
        for name, table in sums.items():
            self._folds.setdefault((span, name), fold_of(self._summaries[name])).add(table)
        if sum(fold.size for fold in self._folds.values()) > FLUSH_ROWS:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[str, bytes]]:
        """Yields and clears the sums, each part with its bucket's name: the span, if any, and `<summary>/<bucket>`."""
        folds, self._folds = self._folds, {}
        for (span, name), fold in folds.items():
            table = fold.sum()
            assert table is not None, name  # noqa: S101 - a table was added
            for bucket, part in split(table, self._summaries[name].buckets(table)):
                yield "/".join([*([span] if span else []), name, f"{bucket:03d}"]), to_bytes(part)


class RowsSeen(Summary[dict[str, int]]):
    """Counts keyed rows, to reconcile them with the written ones: a table of `split`, by its position, and `rows`."""

    name = "rows"
    of_read_rows = True

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        counts = rows["@split"].value_counts()
        return pa.table({"split": counts.field("values"), "rows": counts.field("counts")})

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        return add_up(tables, ["split"], {"rows": "sum"})

    def result(self, tables: Sequence[pa.Table]) -> dict[str, int]:
        counted = {row["split"]: row["rows"] for table in tables for row in table.to_pylist()}
        return {name: counted.get(number, 0) for number, name in enumerate(self.planned.layout.splits)}


def statistics_look(planned: PlannedBuild, live: LiveAnalysis | None = None) -> Look:
    """Makes the look for a build to learn from; without summaries if nothing is to be learned."""
    needed = [summary for summary in _learning(planned) if summary.features]
    kept = KeptSums(open_store(str(live.folder)).url, live.summaries, count=not live.is_frozen) if live else None
    return Look(planned, [RowsSeen(planned), *needed] if needed else [], kept)


def _learning(planned: PlannedBuild) -> list[Vocabularies | TokenizerWords | Moments | Quantiles | PixelSums]:
    return [kind(planned) for kind in (Vocabularies, TokenizerWords, Moments, Quantiles, PixelSums)]


def rows_behind(planned: PlannedBuild, counts: Mapping[str, Counts]) -> dict[str, int]:
    """Counts the splits' rejected rows among those that each feature learned from; only features with any.

    Classes of the label are learned from all splits, all else from `train`. An undecodable image has no pixels.
    """
    features = planned.analyzed.union(*(summary.features for summary in _learning(planned)))
    behind, measured = Counter[str](), planned.measured_images()
    for (of, each), name in product(counts.items(), (name for name in planned.features if name in features)):
        if of == "train" or (name == planned.schema.label and planned.open_label()):
            own = each.at_fault.get(planned.schema.features[name], 0) if name in measured else 0
            behind[name] += each.rejected - own
    return dict(+behind)


def learned(look: Look, done: Sums) -> LearnedAnalysis:
    """Makes the analysis from a finished look. Raises: UserError: as `Summary.result`."""
    planned, results = look.planned, {each.name: look.result(each.name, done) for each in look.summaries}
    vocabularies = results.get(Vocabularies.name) or Vocabularies(planned).result([])  # given ones
    statistics = {name: vocabulary.statistics for name, vocabulary in vocabularies.items()}
    for name, found in _by_feature(results).items():
        statistics.setdefault(name, {}).update(found)
    words = {name: vocabulary.words for name, vocabulary in vocabularies.items()}
    return LearnedAnalysis(results.get(RowsSeen.name), statistics, words, results.get(TokenizerWords.name, {}))


def kept(look: Look, done: Sums, frozen: LiveAnalysis, models: dict[str, bytes]) -> LearnedAnalysis:
    """Returns an earlier version's analysis, with the rows seen by a finished look and their drift."""
    new = _by_feature({kind.name: look.result(kind.name, done, {}) for kind in MEASURED})
    drift = {name: statistics_drift(frozen.statistics.get(name, {}), found) for name, found in new.items()}
    drift = {name: figures for name, figures in drift.items() if figures}
    return LearnedAnalysis(look.result(RowsSeen.name, done), frozen.statistics, {}, models, drift)


def _by_feature(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    statistics: dict[str, dict[str, Any]] = {}
    for kind in MEASURED:
        for name, found in results.get(kind.name, {}).items():
            statistics.setdefault(name, {}).update(found)
    return statistics
