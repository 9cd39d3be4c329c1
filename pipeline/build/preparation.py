"""The start of a build: checks the output, lists the sources, looks for their columns and for space.

None of it needs TensorFlow or Beam, unless sources lie at URLs: a command calls it before it loads them, so that a
wrong spec, source or output is reported within two seconds.

>>> prepared = prepare_locally(spec, "out/emoji", RunOptions(), print)  # doctest: +SKIP
>>> build(spec, "out/emoji", prepared=prepared)                         # doctest: +SKIP
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from recordmill.pipeline.build.class_ids import Names, continues, keeps_ids, names_to_keep
from recordmill.pipeline.build.free_space import check_free_space
from recordmill.pipeline.build.input_listing import Listings
from recordmill.pipeline.build.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.manifest import Manifest, version_folder
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.local_files import LocalFiles
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.build_folders import building_folder, builds
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.prune import sweep
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store


@dataclass(frozen=True)
class Published:
    """The folder and the manifest of a build's version, and whether this build made it."""

    folder: str
    manifest: Manifest
    is_new: bool


@dataclass(frozen=True)
class Prepared:
    """A build that may begin."""

    plan: BuildPlan
    files: Listings
    """The files of the sources, as they were listed for the plan."""
    published: Published | None = None
    """The version that an equal build made, which is live now: nothing is left to do."""


def prepare(spec: Spec, output: str, options: RunOptions, files: Files) -> Prepared:
    """Checks the output and plans the build.

    Raises:
        OutputError: the output cannot be written, or holds something else.
        SourceError: a source is not there, is empty, or lacks a column.
    """
    publishing.check_output(output)
    publishing.check_name(output, spec.name)
    listings = Listings(files)
    plan = make_plan(spec, listings, options.chunk_bytes)
    return Prepared(replace(plan, kept=live_names(spec, output)), listings)


def prepare_locally(spec: Spec, output: str, options: RunOptions, on_note: Callable[[str], None]) -> Prepared | None:
    """Prepares a build without Beam; None if the spec names URLs, which Beam's filesystems read.

    Raises:
        OutputError, SourceError: as `prepare`; of the sources of a spec that names URLs nothing is known yet.
        NoSpaceError: the disk cannot hold a build that begins anew.
    """
    if "://" in spec.model_dump_json(include={"source", "features"}):
        publishing.check_output(output)
        publishing.check_name(output, spec.name)
        return None
    prepared = prepare(spec, output, options, LocalFiles())
    name, building = prepared.plan.build_key[:16], building_folder(output, options.work)
    is_plain = options.runner == "local" and not options.beam_options  # Beam must judge any other
    if is_plain and (published := published_before(output, prepared.plan, options)):
        with suppress(UserError, OSError):  # as at the end of a build
            sweep(output, building)
        return replace(prepared, published=published)
    if is_plain and name not in builds(building):  # else an earlier attempt's shards may be there already
        run = os.path.join(building, name, "run")
        planned = planned_build(prepared.plan, run, LocalFiles(), inline=False, threads=1)
        check_free_space(prepared.plan, planned, kept=0)
    holder = leases.holders(open_store(output)).get(name)
    if holder is not None and not holder.is_dead():
        on_note(waiting(holder))
    return prepared


def waiting(holder: Holder) -> str:
    """Says which process a build waits for."""
    return f"waiting for {holder}, which is at the same build"


def live_names(spec: Spec, output: str) -> Names:
    """The names of the live version whose ids a build keeps.

    Raises:
        OutputError: the live version is damaged, so that its ids cannot be kept.
    """
    if not any(map(keeps_ids, spec.features.values())):
        return {}
    try:
        live = publishing.live_manifest(output)
        return _names(spec, output, live) if live else {}
    except DatasetError as error:
        raise OutputError(
            f"the ids of classes cannot be kept, since the live version is damaged: {error}; make another live by "
            "`recordmill rollback`, or give new ids by `classes: fresh`"
        ) from None


def _names(spec: Spec, output: str, version: Manifest) -> Names:
    return names_to_keep(spec, version_folder(open_location(output), version.version), version)


def version_of(output: str, plan: BuildPlan) -> Manifest | None:
    """The newest version of the same spec and inputs in which every name has the id of the live version."""

    def fits(version: Manifest) -> bool:
        with suppress(UserError):  # a damaged version is none to go back to
            return continues(_names(plan.spec, output, version), plan.kept)
        return False

    return publishing.find_version(output, plan.source_key, fits)


def published_before(output: str, plan: BuildPlan, options: RunOptions) -> Published | None:
    """Makes the version of an equal earlier build live; None if it does not exist or is to be repeated."""
    version = version_of(output, plan)
    if version is None or (options.again and version.rejects.get("files")):
        return None
    if publishing.live_version(output) != version.version:
        publishing.make_live(output, version.version)
    return Published(publishing.version_path(output, version.version), version, is_new=False)
