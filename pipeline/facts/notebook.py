"""Shows datasets and inputs in notebooks: small HTML without script, which needs NumPy and Pillow alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import islice
from typing import Any

import numpy as np
from PIL import Image

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sample import View, in_words, read_examples
from recordmill.pipeline.facts.version import VersionFacts
from recordmill.pipeline.inspection.images import data_url, small
from recordmill.pipeline.inspection.records import read_records
from recordmill.pipeline.reader.dataset import Dataset
from recordmill.pipeline.reader.request import Request
from recordmill.pipeline.reader.rows import Rows
from recordmill.pipeline.safe_text import printable
from recordmill.transforms.contract.kinds.image import ImageDescription

SHOWN = 8  # records


def dataset_html(dataset: Dataset) -> str:
    """Shows a dataset: its splits, its features, and the first records of a split."""
    head = f"<b>{_text(dataset.name)}</b> {_text(dataset.version)}"
    splits = _table(["split", "records"], ((name, f"{count:,}") for name, count in dataset.splits.items()))
    facts = VersionFacts(dataset.folder, dataset.manifest).features.values()
    features = _table(["feature", "kind", "stored"], ((each.name, each.kind, each.stored) for each in facts))
    return f"<div>{head}{splits}{features}{_records(dataset)}</div>"


def _records(dataset: Dataset) -> str:
    split = next((name for name, records in dataset.splits.items() if records), None)
    try:
        if split is None:
            return ""
        records = list(islice(read_records(dataset, split, limit=SHOWN), SHOWN))
        if not View.of(dataset).images:
            names = list(dataset.features)
            rows = ([record.key, *(in_words(record.values[name]) for name in names)] for record in records)
            return _table(["key", *names], rows)
        examples = read_examples(dataset, records)
    except UserError as error:
        return f"<p>{_text(error)}</p>"
    return "".join(
        f'<img src="{image.url}" title="{_text(example.label or example.key)}" alt="{_text(example.key)}" height="96"> '
        for example in examples
        for image in example.images
    )


def input_html(request: Request | None, element_spec: Any, batches: int) -> str:
    """Shows an input: its arrays, and the first images of its first epoch as they are read, augmented if they are.

    Args:
        request: of the records; None for a mixture, whose images are not shown.
        element_spec: the structure of a batch.
        batches: those of an epoch.
    """
    arrays = _table(["array", "shape", "dtype"], _arrays(element_spec))
    what = "an input" if request is None else f"{request.dataset} {request.version}, {request.given.split}"
    images = "" if request is None else "".join(_input_images(request))
    return f"<div><b>{_text(what)}</b>, {batches:,} batches an epoch{arrays}{images}</div>"


def _arrays(spec: Any, name: str = "") -> Iterator[Sequence[str]]:
    """Yields name, shape and dtype of each array of a batch; the parts of a tuple are features, label and weight."""
    if isinstance(spec, dict):
        for inner, each in spec.items():
            yield from _arrays(each, inner)
    elif hasattr(spec, "dtype"):
        yield name, str([size if size is not None else "…" for size in spec.shape]), spec.dtype
    else:
        for part, each in zip(("features", "label", "weight"), spec, strict=False):
            yield from _arrays(each, part)


def _input_images(request: Request) -> Iterator[str]:
    """Yields the images of the first rows; none where the order takes all labels, or a row is several records."""
    shown = [name for name, each in request.features.items() if isinstance(each, ImageDescription)]
    if not shown or request.given.balance or not request.steps.records:
        return
    features = {
        name: replace(each, channel_order="rgb") if isinstance(each, ImageDescription) else each
        for name, each in request.features.items()
    }
    rows = Rows(replace(request, features=features, given=replace(request.given, dtype="uint8")))
    try:
        chosen = rows.choose(0, np.arange(min(SHOWN, request.steps.records)))
        [(values, _)] = rows.read([chosen])
        for pixels in (pixels for name in shown for pixels in np.array(values[name])):
            image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            yield f'<img src="{data_url(small(image))}" alt="" height="96"> '
    except UserError as error:
        yield f"<p>{_text(error)}</p>"
    finally:
        rows.close()


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{''.join(f'<th>{_text(name)}</th>' for name in header)}</tr></thead>{lines}</table>"


def _text(value: object) -> str:
    return escape(printable(str(value)))
