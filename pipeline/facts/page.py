"""The page: `report.html`, one file that loads nothing, runs nothing, and shows data only as text and images.

All text goes through one place, which escapes HTML, shows control characters, and keeps directions of writing apart.
The Content-Security-Policy allows the page's own style by its digest and images in the page, and nothing else.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from recordmill.pipeline import VERSION
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.facts.charts import HEIGHT, WIDTH
from recordmill.pipeline.facts.contents import Contents, read_contents, remarks
from recordmill.pipeline.facts.features import feature_views
from recordmill.pipeline.facts.sample import ShownRecord
from recordmill.pipeline.facts.version import duplicate_lines
from recordmill.pipeline.sources.faults import REASONS
from recordmill.pipeline.versions.stores.traffic import ASKED

HERE = Path(__file__).parent
TEMPLATE, STYLE = "report.html.j2", "report.css"
ISOLATE, END_ISOLATE = "\u2068", "\u2069"
UNSEEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")
"""The characters that HTML cannot hold: control characters, and surrogates, which stand for bytes beyond UTF-8."""
SHOWN_FIGURES = 50  # of the gate, the largest of each rule first


def report_of(dataset: DatasetVersion, sources: Path | None = None, most_word_bytes: int | None = None) -> bytes:
    """Makes the page of a version: the same bytes for the same version, whoever makes it and when.

    `sources` and `most_word_bytes` are those of `read_contents`.

    Raises:
        DatasetError: as `read_contents`.
    """
    contents, manifest = read_contents(dataset, sources, most_word_bytes), dataset.manifest
    style = (HERE / STYLE).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    page = (
        _environment()
        .get_template(TEMPLATE)
        .render(
            style=Markup(style),  # noqa: S704 - our own file
            style_digest=digest,
            recordmill=VERSION,
            manifest=manifest,
            width=WIDTH,
            height=HEIGHT,
            remarks=list(remarks(contents)),
            features=list(feature_views(contents)),
            sample=contents.sample,
            groups=list(_groups(contents)),
            rejects=contents.rejects,
            reasons=REASONS,
            reject_images=contents.reject_images,
            duplicates=list(duplicate_lines(manifest.duplicates)),
            pairs=contents.pairs,
            gate=list(_gate(manifest)),
            drift=[
                (name, what, figure)
                for name, figures in manifest.drift.get("features", {}).items()
                for what, figure in figures.items()
            ],
            spec=json.dumps(_without_nothing(manifest.spec), indent=2, ensure_ascii=False),
            provenance=list(_provenance(manifest)),
        )
    )
    return page.encode("utf-8")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"data": isolated, "plain": plainly_isolated, "number": _number, "percent": "{:.1%}".format}
    return environment


def visible(value: Any) -> Any:
    r"""Shows what HTML cannot hold as escapes: control characters, and bytes of a key that are not UTF-8.

    >>> visible("a\x00b\tc")
    'a\\x00b\tc'
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return UNSEEN.sub(lambda match: ascii(match[0])[1:-1], value)


def isolated(text: Any) -> Markup:
    """Returns text of the data as HTML whose direction of writing ends where it ends."""
    return Markup("<bdi>{}</bdi>").format(escape(visible(str(text))))


def plainly_isolated(text: Any) -> str:
    """Returns text of the data for an attribute or a title, isolated by characters."""
    return f"{ISOLATE}{visible(str(text))}{END_ISOLATE}"


def _number(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.4g}"


def _groups(contents: Contents) -> Iterator[tuple[str | None, Sequence[ShownRecord]]]:
    """Yields the examples by class; all at once where there are no classes."""
    examples = contents.sample.examples if contents.sample else ()
    for label, group in groupby(examples, key=lambda example: example.label):
        yield label, list(group)


def _gate(manifest: Manifest) -> Iterator[tuple[str, str, float, str]]:
    """Yields the gate's figures that are not 0, those beyond their limits first, then the largest of each rule."""
    breaches = {(each["rule"], each["subject"]): each["detail"] for each in manifest.gate.get("breaches", [])}
    rows = [
        (rule, subject, figure, breaches.get((rule, subject), ""))
        for rule, subjects in manifest.gate.get("figures", {}).items()
        for subject, figure in subjects.items()
        if figure
    ]
    rows.sort(key=lambda row: (not row[3], row[0], -row[2], row[1]))
    yield from rows[:SHOWN_FIGURES]


def _without_nothing(value: Any) -> Any:
    """Leaves out what a spec does not say: nulls, and empty lists and objects."""
    if isinstance(value, Mapping):
        return {name: _without_nothing(inner) for name, inner in value.items() if inner not in (None, {}, [])}
    return [_without_nothing(inner) for inner in value] if isinstance(value, list) else value


def _provenance(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yields what the version was made from and by; without the time, so that equal versions have equal reports."""
    yield "build key", manifest.build_key
    for what in ("source_key", "inputs_sha256"):
        if what in manifest.provenance:
            yield what.replace("_", " "), str(manifest.provenance[what])
    for package, version in manifest.provenance.get("packages", {}).items():
        yield package, str(version)
    for kind, counts in manifest.provenance.get(ASKED, {}).items():
        yield f"requests: {kind}", ", ".join(f"{count:,} {what}" for what, count in counts.items())
