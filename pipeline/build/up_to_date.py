"""Finds that nothing is to be done: spec, packages, the user's code and the inputs are those of the live version.

The sources are listed and not planned, so no file is opened, and neither TensorFlow nor Beam is needed. A listing may
show more files than a build uses, so that a build may find that nothing has changed where this finds no answer.
Such keys, and those of inputs that only came to the same bytes, are remembered in `LATEST`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from recordmill.pipeline.build.frozen import ANALYSIS
from recordmill.pipeline.build.input_listing import Listings
from recordmill.pipeline.build.input_table import Remembered
from recordmill.pipeline.build.plan import BuildPlan, list_groups, listing_key
from recordmill.pipeline.dataset.manifest import Location, Manifest, version_folder
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import forgotten, latest_file, publishing
from recordmill.pipeline.versions.stores.open_store import open_location, open_store


@dataclass(frozen=True)
class Comparison:
    """The inputs as they are listed, beside those of the live version."""

    listed_key: str = ""
    """The source key of the listing; empty where it cannot be computed."""
    live: Manifest | None = None
    """The live version, if it comes of these inputs."""
    remembered: Remembered | None = None
    """The inputs of the live version, where they are needed."""


def compare_inputs(spec: Spec, output: str, files: Listings) -> Comparison:
    """Compares the inputs with those of the live version.

    Files of another time of change than the remembered ones are compared by their content: where it is the same,
    `files` gives them their old time from then on.
    """
    with suppress(UserError, OSError):  # the build itself says what is wrong
        latest, live = latest_file.read(open_store(output)), publishing.live_manifest(output)
        groups = list_groups(spec, files)
        key = listing_key(spec, groups, files)
        if latest is None or live is None or not publishing.is_whole(open_store(output), live):
            return Comparison(key)
        if not forgotten.load(open_store(output)).are_left_out_of(live):
            return Comparison(key)
        if not spec.is_frozen and ANALYSIS in live.provenance:  # it did not learn from its own rows
            return Comparison(key)
        known = {forgotten.source_key_of(live), *latest.same}
        if key in known:
            return Comparison(key, live)
        remembered = take_times(spec, version_folder(open_location(output), live.version), files)
        if files.times and listing_key(spec, list_groups(spec, files), files) in known:
            publishing.remember_same(output, live.version, key)  # the next check compares no content
            return Comparison(key, live)
        return Comparison(key, None, remembered)
    return Comparison()


def compare_spans(spec: Spec, output: str, files: Listings, spans: Sequence[str]) -> Remembered | None:
    """Compares the files of some spans alone with those of the live version, as `compare_inputs`; lists no others.

    Returns:
        The inputs of the live version; None where it has none.
    """
    with suppress(UserError, OSError):  # the build itself says what is wrong
        live = publishing.live_manifest(output)
        if live is not None:
            return take_times(spec, version_folder(open_location(output), live.version), files, spans)
    return None


def take_times(spec: Spec, folder: Location, files: Listings, only: Sequence[str] = ()) -> Remembered | None:
    """Gives files that have the content, but not the time, that a version remembers, the remembered time.

    Args:
        spec: the dataset's.
        folder: the version's.
        files: the files of the sources.
        only: the spans whose files are listed; none for all files.

    Returns:
        The inputs that it remembers; None where it has none.
    """
    remembered = Remembered.read(folder, by_span=spec.has_templates)
    if remembered is not None:
        with suppress(UserError, OSError):  # the plan says what is wrong
            files.take(remembered.times(list_groups(spec, files, only), files))
    return remembered


def remember(output: str, version: Manifest, plan: BuildPlan) -> None:
    """Notes that a plan's inputs come to the live version, so that the next check needs no plan."""
    with suppress(UserError):  # it is only slower
        for key in {plan.source_key, plan.listed_key} - {forgotten.source_key_of(version), ""}:
            publishing.remember_same(output, version.version, key)
