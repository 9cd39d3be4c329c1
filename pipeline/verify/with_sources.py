"""The parts of `recordmill verify` that need the packages of a build: comparing raw rows with records, and repairing.

>>> report = with_sources(verify("out/emoji"), spec, rows=64, mend=True)  # doctest: +SKIP
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.context.graph import install_user_code
from recordmill.pipeline.build.input_listing import Listings
from recordmill.pipeline.build.plan import make_plan, planned_build
from recordmill.pipeline.build.up_to_date import take_times
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.verify.parity import NOT_CHECKED, check_parity
from recordmill.pipeline.verify.repair import repair
from recordmill.pipeline.verify.report import Findings, Report
from recordmill.pipeline.verify.verify import verify


def with_sources(report: Report, spec: Spec | None, *, rows: int, mend: bool) -> Report:
    """Completes the report of a verified version.

    Args:
        report: of a version in a local folder.
        spec: the dataset's; None if only indexes may need repair.
        rows: the largest number of raw rows to compare; 0 for none.
        mend: whether to repair what is damaged, and verify again.
    """
    folder = Path(report.folder)
    if mend and not report.is_whole:
        done = repair(folder, report.manifest, report.findings, spec)
        report = replace(verify(report.folder), repaired=done.files, unrepaired=done.reasons)
    if spec is None or not rows:
        return report
    report.findings.merge(_parity(folder, report.manifest, spec, rows))
    return report


def _parity(folder: Path, manifest: Manifest, spec: Spec, rows: int) -> Findings:
    files = Listings(BeamFiles())
    try:
        take_times(spec, folder, files)
        plan = make_plan(spec, files)
    except UserError as error:
        return Findings(unchecked=[f"{NOT_CHECKED}{error}"])
    with tempfile.TemporaryDirectory(prefix="recordmill-") as scratch:
        work = planned_build(plan, os.path.join(scratch, "run"), files.files, inline=True, threads=0)
        install_user_code(work)
        return check_parity(folder, manifest, plan, work, rows)
