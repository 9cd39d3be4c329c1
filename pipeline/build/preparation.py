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
from functools import partial

from recordmill.pipeline.build.class_ids import Names, continues, keeps_ids, names_to_keep
from recordmill.pipeline.build.free_space import check_free_space
from recordmill.pipeline.build.frozen import ANALYSIS, LiveAnalysis, graph_changes, graph_digest
from recordmill.pipeline.build.input_listing import Listings
from recordmill.pipeline.build.input_table import Remembered
from recordmill.pipeline.build.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.spans.choose import SpanError
from recordmill.pipeline.build.up_to_date import Comparison, compare_inputs, compare_spans, remember
from recordmill.pipeline.compare.gate import judge_of
from recordmill.pipeline.dataset.manifest import Candidate, Manifest, version_folder
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.exit_codes import ExitCode
from recordmill.pipeline.sources.files import Files, ListedByStore, LocalFiles
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import forgotten, leases, publishing
from recordmill.pipeline.versions.build_folders import building_folder, builds
from recordmill.pipeline.versions.leases import Holder
from recordmill.pipeline.versions.prune import sweep
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import is_local, open_location, open_store

STORE_OPTIONS = ("--s3_", "--gcs_", "--no_auth", "--gcp_oauth_scopes", "--impersonate_service_account")
"""Beam's own options of how to reach object stores."""


@dataclass(frozen=True)
class Published:
    """The outcome of a build."""

    folder: str
    manifest: Manifest
    is_new: bool
    """Whether this build made the version."""
    went_live: bool = True
    """Whether `LATEST` was moved to the version; False where it was live already, or waits as a candidate."""
    before: str | None = None
    """The version that was live before; None where there was none."""
    candidate: Candidate | None = None
    """The version as a candidate, where the gate held it back."""
    built_spans: tuple[str, ...] = ()
    """The spans that this build read."""
    kept_spans: tuple[str, ...] = ()
    """The spans that it took over."""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command that ends with it."""
        if self.manifest.trial:
            return ExitCode.PUBLISHED
        if self.candidate is not None:
            return ExitCode.GATE
        return ExitCode.PUBLISHED if self.went_live else ExitCode.UP_TO_DATE


@dataclass(frozen=True)
class Prepared:
    """A build that may begin."""

    plan: BuildPlan
    files: Listings
    """The files of the sources, as they were listed for the plan."""
    remembered: Remembered | None = None
    """The inputs of the live version."""


def prepare(spec: Spec, output: str, options: RunOptions, files: Files) -> Prepared | Published:
    """Checks the output and plans the build, unless nothing has changed since the live version was built.

    Raises:
        OutputError: the output cannot be written, or holds something else.
        SourceError: a source is not there, is empty, or lacks a column.
    """
    publishing.check_output(output)
    publishing.check_name(output, spec.name)
    listings = Listings(files)
    if options.spans:  # a build of some spans neither lists nor compares the others' files
        remembered = compare_spans(spec, output, listings, options.spans)
        return Prepared(plan_on_live(spec, output, options, listings), listings, remembered)
    compared = compare_inputs(spec, output, listings)
    if published := _unchanged(compared, output, options):
        return published
    plan = replace(plan_on_live(spec, output, options, listings), listed_key=compared.listed_key)
    return Prepared(plan, listings, compared.remembered)


def plan_on_live(spec: Spec, output: str, options: RunOptions, files: Listings) -> BuildPlan:
    """Plans a build with what it takes over from the live version.

    Raises:
        OutputError, SourceError: as `prepare`.
    """
    base = base_of(spec, output, options)
    is_growing = base is not None and base.spans and not spec.has_templates
    folder = version_folder(open_location(output), base.version) if base and is_growing else None
    known = Remembered.read(folder, by_span=False) if folder else None
    compact, limit = options.compact, options.limit
    make = partial(make_plan, spec, files, options.chunk_bytes, only=options.spans, compact=compact, limit=limit)
    inputs = known.table if known else None
    plan = with_live(make(base=base, inputs=inputs, again=options.again), output)
    if plan.spans.kept and plan.live is None:  # the records of its spans are those of another graph
        plan = with_live(make(), output)
    return plan


def plan_again(plan: BuildPlan, output: str, options: RunOptions, files: Listings) -> BuildPlan:
    """Gives a plan as it is with the version that is live now, which may be another than it was made with.

    Raises:
        OutputError, SourceError: as `prepare`.
    """
    if plan.is_anew:
        return with_live(plan, output)
    base = base_of(plan.spec, output, options)
    if (base and base.version) == (plan.spans.base and plan.spans.base.version):
        return with_live(plan, output)
    return replace(plan_on_live(plan.spec, output, options, files), listed_key=plan.listed_key)


def base_of(spec: Spec, output: str, options: RunOptions) -> Manifest | None:
    """Gives the live version, if spans of it may be kept: it is whole, holds no forgotten row, and its graph stays.

    Raises:
        SpanError: some spans are to be built alone, and the others cannot be kept.
    """
    if not spec.has_spans or options.limit is not None:
        return None
    fault, live = "", None
    try:
        live = publishing.live_manifest(output)
    except DatasetError as error:
        fault = f"the live version is damaged: {error}"
    if live is not None and not forgotten.load(open_store(output)).are_left_out_of(live):
        fault = "the live version holds forgotten rows"
    elif live is not None and not spec.is_frozen and (options.spans or not _holds_sums(spec, live)):
        fault = "`analysis: refresh` learns a graph of all rows"
    if fault and options.spans:
        raise SpanError(f"--span keeps the other spans of the live version, and cannot: {fault}; build without --span")
    return None if fault else live


def _holds_sums(spec: Spec, live: Manifest) -> bool:
    """Whether the live version has the sums of its spans, and no forgotten row among them."""
    return spec.summaries and "forgotten" not in live.provenance


def plan_anew(plan: BuildPlan, output: str, options: RunOptions, files: Listings) -> BuildPlan:
    """Gives a plan that keeps no span of the live version. Raises: OutputError, SourceError: as `prepare`."""
    made = make_plan(plan.spec, files, options.chunk_bytes, compact=options.compact, limit=options.limit)
    anew = with_live(made, output)
    return replace(anew, listed_key=plan.listed_key, is_anew=True)


def _unchanged(compared: Comparison, output: str, options: RunOptions) -> Published | None:
    """Gives the live version if it comes of these inputs, and is not to be built again; no candidate waits then."""
    live = compared.live
    if live is None or _asks_for_more(options) or _is_repeated(live, options):
        return None
    publishing.take_back(output, live.version)
    return Published(publishing.version_path(output, live.version), live, is_new=False, went_live=False)


def _asks_for_more(options: RunOptions) -> bool:
    """Whether a build may make another version of the live one's inputs."""
    return bool(options.spans or options.compact or options.limit is not None)


def listed(files: Files, options: RunOptions) -> Files:
    """Gives files whose listings of object stores need no Beam, unless Beam's options say how to reach a store."""
    is_beams = any(option.startswith(STORE_OPTIONS) for option in options.beam_options)
    return files if is_beams else ListedByStore(files)


def prepare_locally(
    spec: Spec, output: str, options: RunOptions, on_note: Callable[[str], None]
) -> Prepared | Published | None:
    """Prepares a build without Beam; None if the spec names URLs, which Beam's filesystems open.

    Where nothing is to be done, it gives the live version instead.

    Raises:
        OutputError, SourceError: as `prepare`; of the sources of a spec that names URLs nothing is known yet.
        NoSpaceError: the disk cannot hold a build that begins anew.
    """
    if "://" in spec.model_dump_json(include={"source", "features"}):
        publishing.check_output(output)
        publishing.check_name(output, spec.name)
        if _asks_for_more(options):
            return None
        return _unchanged(compare_inputs(spec, output, Listings(listed(LocalFiles(), options))), output, options)
    building = building_folder(output, options.work)
    prepared = prepare(spec, output, options, LocalFiles())
    if isinstance(prepared, Published):
        return swept(prepared, output, building)
    name = prepared.plan.build_key[:16]
    if is_plain(options) and (published := published_before(output, prepared.plan, options)):
        return swept(published, output, building)
    if is_plain(options) and name not in builds(building):  # else an earlier attempt's shards may be there already
        run = os.path.join(building, name, "run")
        planned = planned_build(prepared.plan, run, LocalFiles(), inline=False, threads=1)
        check_free_space(prepared.plan, planned, kept=0)
    holder = leases.holders(open_store(output)).get(name)
    if holder is not None and not holder.is_dead():
        on_note(waiting(holder))
    return prepared


def is_plain(options: RunOptions) -> bool:
    """Whether a build runs locally without options of Beam's, which Beam must judge."""
    return options.runner == "local" and not options.beam_options


def swept(published: Published, output: str, building: str) -> Published:
    """Removes what killed builds left, as at the end of a build; in a bucket that would take a request a version."""
    if is_local(output):
        with suppress(UserError, OSError):
            sweep(output, building)
    return published


def waiting(holder: Holder) -> str:
    """Says which process a build waits for."""
    return f"waiting for {holder}, which is at the same build"


def with_live(plan: BuildPlan, output: str) -> BuildPlan:
    """Gives a plan with what the output adds: names that keep their ids, the frozen analysis, and forgotten keys.

    Raises:
        OutputError: the live version is damaged, so that neither can be kept.
    """
    live, note = _frozen(plan, output) if plan.spec.is_frozen else (_summed(plan, output), None)
    notes = [*plan.notes, *([note] if note and note not in plan.notes else [])]
    gone = forgotten.load(open_store(output))
    return replace(plan, kept=live_names(plan.spec, output), forgotten=gone, live=live, notes=notes)


def _summed(plan: BuildPlan, output: str) -> LiveAnalysis | None:
    """Gives the live version's analysis where the sums of spans that are not read are added to those of the others."""
    base, kept = plan.spans.base, tuple(plan.spans.kept)
    if base is None or not kept:
        return None
    return LiveAnalysis(publishing.version_path(output, base.version), base, kept, is_frozen=False)


def _frozen(plan: BuildPlan, output: str) -> tuple[LiveAnalysis | None, str | None]:
    """Gives the live version's analysis, or a note that says why it cannot be kept; neither for the first build."""
    try:
        live = publishing.live_manifest(output)
    except DatasetError as error:
        raise OutputError(f"the analysis cannot be kept, since the live version is damaged: {error}") from None
    if live is None:
        return None, None
    if changes := graph_changes(live, plan.graph_inputs):
        return None, f"the frozen analysis cannot be kept, all is learned and built anew: {'; '.join(changes)}"
    return LiveAnalysis(publishing.version_path(output, live.version), live, tuple(plan.spans.kept)), None


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
            "`recordmill versions rollback`, or give new ids by `classes: fresh`"
        ) from None


def _names(spec: Spec, output: str, version: Manifest) -> Names:
    return names_to_keep(spec, version_folder(open_location(output), version.version), version)


def version_of(output: str, plan: BuildPlan) -> Manifest | None:
    """The newest version of the same spec and inputs in which every name has the id of the live version.

    Its graph is the one that is taken over, or was learned from its own rows.
    """

    def fits(version: Manifest) -> bool:
        if version.spans.keys() != plan.spans.spans.keys():
            return False
        is_own = ANALYSIS not in version.provenance
        if not (is_own if plan.frozen is None else graph_digest(version) == plan.frozen.digest):
            return False
        with suppress(UserError):  # a build never goes back to a damaged version
            return continues(_names(plan.spec, output, version), plan.kept)
        return False

    return publishing.find_version(output, plan.rows_key, fits)


def published_before(output: str, plan: BuildPlan, options: RunOptions) -> Published | None:
    """Makes the version of an equal earlier build live; None if it does not exist or is to be repeated.

    The gate compares it with the live one first: it may be a candidate that waits, or the data of long ago.
    """
    version = version_of(output, plan)
    if version is None or _is_repeated(version, options):
        return None
    before, path = publishing.live_version(output), publishing.version_path(output, version.version)
    if version.trial:
        return Published(path, version, is_new=False, went_live=False)
    if before != version.version:
        folder = version_folder(open_location(output), version.version)
        latest = publishing.make_live(output, version.version, judge_of(plan.spec, output, folder, version))
        if latest.version != version.version:
            return Published(path, version, is_new=False, went_live=False, before=before, candidate=latest.candidate)
    if before == version.version and not options.spans:  # a build of some spans says nothing of the candidate's others
        publishing.take_back(output, version.version)
    remember(output, version, plan)
    return Published(path, version, is_new=False, went_live=before != version.version, before=before)


def _is_repeated(version: Manifest, options: RunOptions) -> bool:
    """Whether a build of a version is repeated, since rows of it may be mended."""
    return bool(options.again and version.rejects.get("files"))
