"""Cases of texts: one or several a row, pairs, chats, and labels of tokens."""

from tests.table.case import Case

CASES: dict[str, Case] = {}
SPECS: dict[str, dict[str, object]] = {}
