"""Types the eight tasks of `first_days.md`, each in a folder of its own."""

import re
from pathlib import Path

import pytest

from tests.test_site import ROOT, programs, run

BLOCK = re.compile(r"^```(sh has|sh typed|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(\.\./(docs/.+?)\)")
PARTS = Path(__file__).with_name("first_days.md").read_text("utf-8").split("\n## ")[1:]
TASKS = {title: task for title, _, task in (part.partition("\n") for part in PARTS)}
FOREIGN = ("Grain", "From Hugging Face datasets")


def test_each_task_takes_two_pages_and_ten_lines() -> None:
    assert len(TASKS) == 8
    readme, first = ((ROOT / page).read_text("utf-8") for page in ("README.md", "docs/first_dataset.md"))
    for task in TASKS.values():
        pages = LINK.findall(task)
        assert 1 <= len(pages) <= 2
        assert f"]({pages[-1]})" in readme
        assert all(Path(page).name in readme + first + (ROOT / pages[-1]).read_text("utf-8") for page in pages)
        assert len(dict(BLOCK.findall(task))["sh typed"].splitlines()) <= 10


@pytest.mark.nightly
@pytest.mark.parametrize("title", TASKS)
def test_what_a_newcomer_types_gives_what_the_page_says(title: str, tmp_path: Path) -> None:
    first = programs(are_foreign=title in FOREIGN)
    blocks = dict(BLOCK.findall(TASKS[title]))
    given = f"export EXAMPLES={ROOT / 'examples'}\n"
    run(given + blocks["sh has"], tmp_path, *first)
    assert run(blocks["sh typed"], tmp_path, *first).splitlines()[-1] == blocks["text"].strip()
