"""Compares the inputs as they are listed with those of the live version: whether there is anything to build.

The sources are listed and not planned, so no file is opened, and neither TensorFlow nor Beam is needed. A listing may
show more files than a build uses, so that a build may come to the live version where this finds no answer. Such keys,
and those of inputs that only came to the same bytes, are remembered in `LATEST`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from recordmill.pipeline.build.base.live_analysis import ANALYSIS
from recordmill.pipeline.build.inputs.input_table import Remembered
from recordmill.pipeline.build.inputs.listings import Listings
from recordmill.pipeline.build.plan.keys import list_groups, listing_digest, listing_key
from recordmill.pipeline.build.plan.plan import BuildPlan, inputs_digest
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base, source_key_of
from recordmill.pipeline.versions.stores.open_store import open_store


@dataclass(frozen=True)
class Inputs:
    """The inputs of a build, as they are listed."""

    files: Listings
    """The sources' files, each with the time that stands for its content."""
    key: str = ""
    """The source key of the listing; empty where it cannot be computed."""
    are_those_of_live: bool = False
    """Whether the live version was built of them, so that there is nothing to build."""
    remembered: Remembered | None = None
    """The inputs of the live version; None where it has none, or they are not needed."""

    @property
    def table(self) -> pa.Table | None:
        """The table of `remembered`."""
        return self.remembered.table if self.remembered else None


def compare_inputs(spec: Spec, base: Base, files: Listings, spans: Sequence[str] = ()) -> Inputs:
    """Compares the inputs with those of the live version.

    Files of another time of change than the remembered ones are compared by their content: where it is the same,
    `files` gives them their old time from then on.

    Args:
        spec: the dataset.
        base: what its output holds.
        files: the files of the sources.
        spans: the spans whose files alone are listed and compared; none for all files.
    """
    if spans:
        return Inputs(files, remembered=_remembered(spec, base, files, spans))
    key = _listing_key(spec, files)
    known = _known_keys(spec, base)
    if key in known:
        return Inputs(files, key, are_those_of_live=True)
    remembered = _remembered(spec, base, files)
    if known and files.times and _listing_key(spec, files) in known:
        with suppress(UserError):  # the next check compares contents again
            publishing.remember_same(base.output, base.version or "", key)
        return Inputs(files, key, True, remembered)
    return Inputs(files, key, False, remembered)


def _listing_key(spec: Spec, files: Listings) -> str:
    with suppress(UserError, OSError):  # the plan says what is wrong
        return listing_key(spec, list_groups(spec, files), files)
    return ""


def _known_keys(spec: Spec, base: Base) -> set[str]:
    """Returns the source keys whose inputs come to the live version; none where it must be built again."""
    live = base.live
    if base.latest is None or live is None or base.holds_forgotten_rows:
        return set()
    if not spec.is_frozen and ANALYSIS in live.provenance:  # it did not learn from its own rows
        return set()
    with suppress(UserError):
        if publishing.is_whole(open_store(base.output), live):
            return {source_key_of(live), *base.latest.same}
    return set()


def _remembered(spec: Spec, base: Base, files: Listings, spans: Sequence[str] = ()) -> Remembered | None:
    return None if base.live is None else take_times(spec, base.folder, files, spans)


def take_times(spec: Spec, folder: Location, files: Listings, only: Sequence[str] = ()) -> Remembered | None:
    """Sets the remembered time for files that have the content, but not the time, that a version remembers.

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


def remember(base: Base, version: Manifest, source_keys: set[str]) -> None:
    """Notes that the inputs of source keys come to the live version, so that the next check needs no plan."""
    with suppress(UserError):  # the next check is only slower
        for key in source_keys - {source_key_of(version), ""}:
            publishing.remember_same(base.output, version.version, key)


SHOWN = 3


class InputsChangedError(UserError):
    """The inputs changed since the build began; the message names some."""

    exit_code = ExitCode.TRY_AGAIN


def check_unchanged(plan: BuildPlan, files: Listings) -> None:
    """Checks that a build of these inputs would still be the same.

    Raises:
        InputsChangedError: it would differ.
    """
    listed, now = files.again(), ""
    with suppress(SourceError, OSError):
        if not plan.spec.has_spans and listing_digest(list_groups(plan.spec, listed)) == plan.inputs_sha256:
            return
        now = inputs_digest(plan, listed)  # a listing may hold files that are not used
    if now == plan.inputs_sha256:
        return
    changed = sorted(set(files.changes()))
    if now or changed:  # otherwise the source cannot be planned for another reason
        more = f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        named = f" ({', '.join(changed[:SHOWN])}{more})" if changed else ""
        raise InputsChangedError(
            f"the inputs changed while they were read{named}: build again when nothing writes to them"
        )
