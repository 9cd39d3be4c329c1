"""Cases of images, and of what lies on them: boxes, masks, key points."""

from tests.table.case import Case

CASES: dict[str, Case] = {}
SPECS: dict[str, dict[str, object]] = {}
