"""The start of a build: checks the output, lists the sources, looks for their columns and for space.

None of it needs TensorFlow or Beam, unless sources lie at URLs: a command calls it before it loads them, so that a
wrong spec, source or output is reported within two seconds.

>>> prepared = prepare_locally(spec, "out/emoji", RunOptions(), print)  # doctest: +SKIP
>>> build(spec, "out/emoji", prepared=prepared)                         # doctest: +SKIP
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from recordmill.pipeline.build.free_space import check_free_space
from recordmill.pipeline.build.input_listing import Listings
from recordmill.pipeline.build.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.local_files import LocalFiles
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.build_folders import building_folder, builds
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.stores.open_store import open_store


@dataclass(frozen=True)
class Prepared:
    """A build that may begin."""

    plan: BuildPlan
    files: Listings
    """The files of the sources, as they were listed for the plan."""


def prepare(spec: Spec, output: str, options: RunOptions, files: Files) -> Prepared:
    """Checks the output and plans the build.

    Raises:
        OutputError: the output cannot be written, or holds something else.
        SourceError: a source is not there, is empty, or lacks a column.
    """
    publishing.check_output(output)
    publishing.check_name(output, spec.name)
    listings = Listings(files)
    return Prepared(make_plan(spec, listings, options.chunk_bytes), listings)


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
    name = prepared.plan.build_key[:16]
    building = building_folder(output, options.work)
    if publishing.live_version(output) is None and name not in builds(building):  # whose shards may be there already
        run = os.path.join(building, name, "run")
        planned = planned_build(prepared.plan, run, LocalFiles(), inline=options.runner != "local", threads=1)
        check_free_space(prepared.plan, planned, kept=0)
    holder = leases.holders(open_store(output)).get(name)
    if holder is not None and not holder.is_dead():
        on_note(waiting(holder))
    return prepared


def waiting(holder: Holder) -> str:
    """Says which process a build waits for."""
    return f"waiting for {holder}, which is at the same build"
