"""Reports of spans: the facts of a kept span in the sums of a later version.

spans/<span>/report.json       rows by source, rejects by reason, duplicates, and the reports of the shards
spans/<span>/rejected.jsonl    the span's rejected rows, if there are any
"""

import json
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, span_file, span_of_file
from recordmill.pipeline.dataset.manifest import Manifest, Shard, version_folder
from recordmill.pipeline.dataset.manifest_parts import MOST_BYTES, Report, read_report
from recordmill.pipeline.dataset.paths import read_checked
from recordmill.pipeline.dataset.placement import Layout
from recordmill.pipeline.versions.latest import rolls_back
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_location


class KeptSpan(NamedTuple):
    """A span that a build keeps."""

    report: Report
    rejected: bytes  # the lines of rejected rows


def files_of(base: Manifest, spans: Iterable[str]) -> list[str]:
    """Lists the small files of spans of a version."""
    chosen = set(spans)
    return [path for path in base.files if span_of_file(path) in chosen]


def read_spans(output: str, base: Manifest, spans: Iterable[str]) -> dict[str, KeptSpan]:
    """Reads the reports of spans of a version. Raises: OutputError: a file is missing or damaged."""
    return {span: _read(output, base, span) for span in spans}


def _read(output: str, base: Manifest, span: str) -> KeptSpan:
    folder = version_folder(open_location(output), base.version)
    names = [span_file(span, name) for name in (REPORT, REJECTED)]
    try:
        report, rejected = (
            read_checked(folder, name, base.files[name]["sha256"], MOST_BYTES) if name in base.files else b""
            for name in names
        )
        return KeptSpan(read_report(report), rejected)
    except ValueError as error:
        raise OutputError(
            f"the span {span} cannot be kept, since the live version is damaged ({error}): build with --compact, or "
            f"{rolls_back(output)}"
        ) from error


def shards_by_group(kept: Mapping[str, KeptSpan], layout: Layout) -> dict[int, Report]:
    """Returns the reports of kept shards by group in a new layout, without empty shards."""
    reports = (zip(layout.groups_of_span(name), span.report["shards"], strict=True) for name, span in kept.items())
    return {group: report for group, report in chain.from_iterable(reports) if report is not None}


def kept_shards(base: Manifest, spans: Collection[str], layout: Layout) -> dict[int, Shard]:
    """Returns the shards of a version's spans by group in a new layout."""
    listed = {span: list[Shard]() for span in spans}
    for shard in (shard for split in layout.splits for shard in base.splits[split].shards):
        if shard.span in listed:
            listed[shard.span].append(shard)
    pairs = (zip(layout.groups_of_span(span), shards, strict=True) for span, shards in listed.items())
    return dict(chain.from_iterable(pairs))


def add_up_duplicates(entries: Iterable[Report]) -> Report:
    """Adds up the manifest's entries on duplicates within spans, at least one."""
    first, *others = entries
    total = json.loads(json.dumps(first))
    for entry in others:
        total["keys_across"] += entry["keys_across"]
        _add(total["exact"], entry["exact"])
    return dict(total)


def _add(total: Report, more: Report) -> None:
    for name in ("groups", "rows"):
        total[name] += more[name]
    _add_counts(total["within"], more["within"])
    for earlier, counts in more["across"].items():
        _add_counts(total["across"].setdefault(earlier, {}), counts)
    examples = [*total["examples"], *more["examples"]]
    examples.sort(key=lambda pair: pair[0]["split"] == pair[1]["split"])  # pairs of two splits come first
    total["examples"] = examples[:5]


def _add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
