"""The files of spans in a version that is being assembled: those taken over, and reports of those built."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recordmill.pipeline.build.results import Results
from recordmill.pipeline.build.spans.reports import files_of, kept_shards
from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, index_name, shard_name, span_file
from recordmill.pipeline.dataset.manifest import Json, Shard
from recordmill.pipeline.dataset.paths import path_within
from recordmill.pipeline.versions.kept_files import KeptFiles


@dataclass(frozen=True)
class TakenOver:
    """The files that were taken over."""

    shards: Mapping[int, Shard] = field(default_factory=dict)
    """The shards by group."""
    entries: Mapping[str, Json] = field(default_factory=dict)
    """`bytes` and `sha256` of their indexes and of the spans' small files, by path."""


def take_over(results: Results, output: str, assembled: str, version: str, on_note: Callable[[str], None]) -> TakenOver:
    """Takes the files of kept spans over into an assembled version.

    Raises:
        DatasetError: the live version lacks one.
        OSError: one can be neither linked nor copied.
        OutputError: the store cannot copy one.
    """
    base, spans, layout = results.plan.spans.base, results.plan.spans.kept, results.context.layout
    if base is None or not spans:
        return TakenOver()
    files, shards = KeptFiles(output, base, assembled, version), dict[int, Shard]()
    for group, shard in kept_shards(base, spans, layout).items():
        split, number = layout.shard_of_group(group)
        names = (name(results.context.name, split, number, layout.shards[split]) for name in (shard_name, index_name))
        shards[group] = files.shard(shard, *names)
    files.files(files_of(base, spans))
    if files.note:
        on_note(files.note)
    return TakenOver(shards, files.entries)


def write_span_files(results: Results, assembled: Path) -> None:
    """Writes the reports and the rejected rows of the spans that were built."""
    for span in results.plan.spans.built:
        files = {REPORT: json.dumps(results.span_report(span)).encode(), REJECTED: results.rejected_of(span)}
        for name, data in files.items():
            if data:
                path_within(assembled, span_file(span, name)).write_bytes(data)
