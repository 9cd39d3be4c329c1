"""The profiles of single spans, which the gate limits where a version has new spans.

>>> with_new_spans(ComparedVersion.read(folder, manifest), live).spans.keys()  # doctest: +SKIP
dict_keys(['2026-11-19'])
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from recordmill.pipeline.compare.versions import ComparedVersion, SpanProfile
from recordmill.pipeline.dataset.arrow_tables import read_table
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.dataset.manifest_parts import MOST_BYTES, read_report
from recordmill.pipeline.dataset.paths import read_inner
from recordmill.pipeline.dataset.profile import by_split

PIXELS = "summaries/pixels/"
SUMS = ("images", "pixels", "total", "squares")
"""The columns of a span's sums of pixels, by feature, channel and level."""


def with_last_spans(version: ComparedVersion, most: int) -> ComparedVersion:
    """Adds a live version's last spans, at most `most`; none where one is damaged, so that limits alone decide."""
    names = [name for name, span in version.manifest.spans.items() if not span.members][-most:]
    with suppress(DatasetError):
        return replace(version, spans={name: _profile(version.folder, version.manifest, name) for name in names})
    return version


def with_new_spans(version: ComparedVersion, live: Manifest) -> ComparedVersion:
    """Adds the spans whose rows the live version lacks; those that are damaged have no values, and make a fault."""
    spans, faults = dict[str, SpanProfile](), [version.fault] if version.fault else []
    for name in _new_spans(live, version.manifest):
        try:
            spans[name] = _profile(version.folder, version.manifest, name)
        except DatasetError as error:
            spans[name] = SpanProfile({})
            faults.append(str(error))
    return replace(version, spans=spans, fault="; ".join(faults))


def _new_spans(live: Manifest, manifest: Manifest) -> list[str]:
    """Names the spans whose rows the live version lacks; none where it has no span of this version."""
    known = {key for span in live.spans.values() for key in (span.key, *span.members.values())}
    new = [name for name, span in manifest.spans.items() if not known.issuperset(span.members.values() or [span.key])]
    return new if len(new) < len(manifest.spans) else []


def _profile(folder: Location, manifest: Manifest, span: str) -> SpanProfile:
    """Reads the profile of a span. Raises: DatasetError: its report or its sums are broken."""
    path = span_file(span, REPORT)
    try:
        profiles = by_split(filter(None, read_report(read_inner(folder, path, MOST_BYTES))["shards"]))
        return SpanProfile(profiles, _pixels(folder, manifest, span_file(span, PIXELS)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{folder / path} is broken ({error}): build again") from None


def _pixels(folder: Location, manifest: Manifest, sums: str) -> dict[str, dict[str, Any]]:
    """Returns `mean` and `variance` by channel, and the number of `images`, of images whose pixels were summed."""
    totals = dict[str, dict[int, list[int]]]()
    for path in (path for path in manifest.files if path.startswith(sums)):
        for row in read_table(folder, path, read_inner(folder, path, MOST_BYTES)).to_pylist():
            total = totals.setdefault(row["feature"], {}).setdefault(row["channel"], [0, 0, 0, 0])
            total[:] = [old + row[name] for old, name in zip(total, SUMS, strict=True)]
    return {name: _moments([total for _, total in sorted(channels.items())]) for name, channels in totals.items()}


def _moments(channels: list[list[int]]) -> dict[str, Any]:
    counted = [(pixels or 1, total, squares) for _, pixels, total, squares in channels]
    variance = [(squares * count - total**2) / count**2 for count, total, squares in counted]
    return {"mean": [total / count for count, total, _ in counted], "variance": variance, "images": channels[0][0]}
