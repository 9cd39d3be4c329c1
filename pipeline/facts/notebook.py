"""Shows datasets and inputs in notebooks: small HTML without script, which needs NumPy and Pillow alone."""

from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sample import FeatureRoles, in_words, read_examples
from recordmill.pipeline.facts.version import VersionFacts, shown_split
from recordmill.pipeline.inspection.records import read_records
from recordmill.pipeline.reader.notebook import SHOWN, html_text, table


def dataset_html(dataset: DatasetVersion) -> str:
    """Shows a dataset: its splits, its features, and the first records of a split."""
    head = f"<b>{html_text(dataset.name)}</b> {html_text(dataset.version)}"
    splits = table(["split", "records"], ((name, f"{count:,}") for name, count in dataset.splits.items()))
    facts = VersionFacts(dataset.folder, dataset.manifest).features.values()
    features = table(["feature", "kind", "stored"], ((each.name, each.kind, each.stored) for each in facts))
    return f"<div>{head}{splits}{features}{_records(dataset)}</div>"


def _records(dataset: DatasetVersion) -> str:
    split = shown_split(dataset.manifest)
    try:
        if split is None:
            return ""
        records = list(read_records(dataset, split, limit=SHOWN))
        if not FeatureRoles.of(dataset).images:
            names = list(dataset.features)
            rows = ([record.key, *(in_words(record.values[name]) for name in names)] for record in records)
            return table(["key", *names], rows)
        examples = read_examples(dataset, records)
    except UserError as error:
        return f"<p>{html_text(error)}</p>"
    return "".join(
        f'<img src="{image.url}" title="{html_text(each.label or each.key)}" alt="{html_text(each.key)}" height="96"> '
        for each in examples
        for image in each.images
    )
