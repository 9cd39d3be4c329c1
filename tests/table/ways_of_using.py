"""Ways of using a version: the commands, the serving model, other tools, mixtures, augmentations, adoption."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recordmill.pipeline.compare.diff import diff as diff_versions
from recordmill.pipeline.facts.page import report_of
from recordmill.pipeline.inspection.records import read_records
from recordmill.pipeline.verify.parity import with_parity
from recordmill.pipeline.verify.verify import verify as verify_version
from tests.table.ways import Found, World, judged, way


@way("served: raw rows through the serving model")
def served(world: World) -> Found:
    """The model that a build saves makes of raw rows what the reader makes of records."""
    found: dict[str, str] = {}
    for table in world.tables:
        report = with_parity(verify_version(table.published.folder), table.spec(), 8)
        lines = [problem.message.replace("'", "", 1).replace("'", ":", 1) for problem in report.findings.problems]
        found |= judged(table.cases, lines)
    return found
