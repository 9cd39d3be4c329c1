"""The sources of what was recognized, with the options that only their rows tell, and a sample of the rows."""

import posixpath
from dataclasses import replace

from pydantic import TypeAdapter

from recordmill.pipeline.init.column_sample import Sample
from recordmill.pipeline.init.columns import source_columns
from recordmill.pipeline.init.guess_images import guess_pictures
from recordmill.pipeline.init.guess_kind import LABELS, Guess
from recordmill.pipeline.init.image_folders import images_folder
from recordmill.pipeline.init.recognize import Found
from recordmill.pipeline.sources.base import Files, Source
from recordmill.pipeline.spec.sources import AnySource
from recordmill.transforms.contract.stored import IMAGES

SOURCE: TypeAdapter[Source] = TypeAdapter(AnySource)


def open_sample(files: Files, found: Found) -> tuple[Found, Sample]:
    """Gives the sources with all their options, and a sample of their rows.

    Raises:
        SourceError: a source cannot read what is there.
        OSError: the same.
    """
    if found.alternative is not None:
        other = open_sample(files, found.alternative)
        if any(_is_picture(guess_pictures(other[1], name)) for name in other[1].names):
            return other
    sample = Sample(_sources(found), files)
    found = _without_unlabelled(found, sample)
    sample = Sample(_sources(found), files)
    folder = images_folder(sample, files)
    return (found, sample) if folder is None else _with_images(found, files, folder)


def _is_picture(guess: Guess | None) -> bool:
    return guess is not None and guess.kind in IMAGES


def _sources(found: Found) -> list[Source]:
    return [SOURCE.validate_python(dict(options)) for options in found.sources]


def _with_images(found: Found, files: Files, folder: str) -> tuple[Found, Sample]:
    sources = [{**options, "images": folder} for options in found.sources]
    found = replace(found, sources=sources, why={**found.why, "images": "where the pictures lie that the rows name"})
    return found, Sample(_sources(found), files)


def _without_unlabelled(found: Found, sample: Sample) -> Found:
    """Leaves out the sources that lack a label which another has, as the test sets of competitions do."""
    if len(found.sources) < 2:
        return found
    columns = [set(source_columns(source, sample.files).names) for source in sample.sources]
    label = next((name for name in LABELS if name in columns[0]), None)
    kept = [options for options, some in zip(found.sources, columns, strict=True) if label is None or label in some]
    left = [str(options["path"]) for options in found.sources if options not in kept]
    told = [found.left_out, *(f"{posixpath.basename(path)}, which has no column {label}" for path in left)]
    if len(kept) == 1:
        kept = [{option: value for option, value in kept[0].items() if option != "split"}]
    why = {option: reason for option, reason in found.why.items() if option != "format" or not left}
    return replace(found, sources=kept, why=why, left_out="; ".join(filter(None, told)))
