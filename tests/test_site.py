"""The documentation: the reference is current, every page has a place, the site builds, pages' code runs."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from recordmill.pipeline.versions.publishing import Published
from tests import hand_made
from tests.emulators import free_port

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOOLS = os.environ.get("RECORDMILL_DOCS_TOOLS")
"""A Python with the packages of docs/tools.lock: `make test-docs` sets it."""
MIGRATION_TOOLS = os.environ.get("RECORDMILL_MIGRATION_TOOLS")
"""A Python with the packages of docs/migrate/tools.lock: `make test-migrate` sets it."""
FOREIGN = {f"migrate/{page}.md" for page in ("datasets", "grain", "img2dataset", "streaming", "torch")}
"""Pages that use the `python` of the other tool's environment."""
RUNNABLE = ["first_dataset.md", "adopt.md", *(f"migrate/{page.name}" for page in sorted(DOCS.glob("migrate/*.md")))]
SEARCHED = {
    "adopt": "label map", "arrays": "embeddings, time series", "augmentation": "data augmentation, MixUp",
    "boxes": "object detection, bounding box", "chats": "loss mask, fine-tuning, SFT", "depth": "16-bit",
    "duplicates": "dedup, data leakage", "gate": "data drift", "image_sequences": "video", "images": "letterbox",
    "keypoints": "pose estimation", "migrate/datasets": "load_dataset", "migrate/torch": "collate, DataLoader",
    "migrate/keras": "image_dataset_from_directory", "numbers_and_categories": "tabular, one-hot, missing values",
    "plan": "dry run", "rebuilds": "cron", "rejects": "bad rows", "serving": "TensorFlow Serving",
    "reading": "oversampling, class weights, progress bar, checkpoint, multi-GPU, imbalanced",
    "segmentation": "semantic segmentation, instance segmentation",
    "spec": "cross-validation, k-fold, train test split",
    "text": "tokenizer, packing", "token_labels": "NER", "verify": "checksum", "versions": "GDPR, rollback",
}  # fmt: skip
"""Words that people type, by the page that they want first."""
SEARCH = """
const fs = require("fs"), path = require("path"), [site, ...words] = process.argv.slice(1), found = {}
const folder = path.join(site, "assets/javascripts/workers")
let listen, answer
Object.assign(globalThis, {self: globalThis, location: {}, importScripts() {}, postMessage: given => answer = given})
globalThis.addEventListener = (_, given) => listen = given
const worker = fs.readdirSync(folder).find(name => name.endsWith(".js"))
require("vm").runInThisContext(fs.readFileSync(path.join(folder, worker), "utf8"))
const ask = async (type, data) => (await listen({data: {type, data}}), answer.data)
;(async () => {
  await ask(0, {...JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"))), options: {}})
  for (const word of words) found[word] = ((await ask(2, word)).items[0] || [{}])[0].location
  console.log(JSON.stringify(found))
})()
"""
"""Asks the search as the theme's own worker runs it, in a browser: the message 0 gives the index, 2 a query."""
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
READ = """
import itertools, json, sys
import mlcroissant

described = mlcroissant.Dataset(sys.argv[1])
issues = described.metadata.ctx.issues
read = {}
for records in described.metadata.record_sets:
    try:
        read[records.uuid] = [str(row) for row in itertools.islice(described.records(records.uuid), 3)]
    except Exception as error:
        read[records.uuid] = type(error).__name__
print(json.dumps({"errors": list(issues.errors), "warnings": list(issues.warnings), "read": read}))
"""


def test_the_reference_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("generate_reference", DOCS / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in module.pages().items():
        assert (DOCS / "reference" / name).read_text() == text, "run python docs/generate_reference.py"


def test_every_page_has_a_place() -> None:
    def pages(nav: Any) -> list[str]:
        if isinstance(nav, str):
            return [nav]
        return [page for item in (nav.values() if isinstance(nav, dict) else nav) for page in pages(item)]

    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    of_root = {"index.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert sorted(set(listed) - of_root) == sorted(str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md"))
    assert len(set(listed)) == len(listed)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if TOOLS is None:
        pytest.skip("needs mkdocs: make test-docs")
    folder = tmp_path_factory.mktemp("site")
    command = [TOOLS, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "WARNING -" not in done.stderr
    return folder


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, which runs the site's own search")
def test_the_search_finds_what_people_type(site: Path) -> None:
    page_of = {word: page for page, words in SEARCHED.items() for word in words.split(", ")}
    assert len(page_of) >= 40
    done = subprocess.run(["node", "-e", SEARCH, str(site), *page_of], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {word: f"{page}.html" for word, page in page_of.items()}


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.glob("**/*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        assert re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//[^"]*"', text) == [], page.name
        assert re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="(?:https?:)?//[^"]*"', text) == []


def commands_of(page: str, folder: Path) -> list[str]:
    """Writes the files of a page, and returns its commands."""
    blocks = BLOCK.findall((DOCS / page).read_text())
    for name, text in [(name, text) for _, name, text in blocks if name]:
        (folder / name).write_text(text)
    return [text for language, name, text in blocks if language == "sh" and not name]


def run(command: str, folder: Path, *first: str) -> str:
    """Runs a command with programs from `first`, then from Recordmill's environment."""
    path = ":".join([*first, str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}  # the reader, for other environments too
    shell = ["bash", "-ec", command]
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
    return done.stdout


def programs(*, are_foreign: bool) -> list[str]:
    """Returns the folders of programs that come first, those of another tool; skips a test that lacks them."""
    if are_foreign and MIGRATION_TOOLS is None:
        pytest.skip("needs the other tool: make test-migrate")
    return [str(Path(MIGRATION_TOOLS).parent)] if MIGRATION_TOOLS and are_foreign else []


@pytest.mark.nightly
@pytest.mark.parametrize("page", RUNNABLE)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    first = programs(are_foreign=page in FOREIGN)
    commands = commands_of(page, tmp_path)
    assert commands
    for command in commands:
        run(command, tmp_path, *first)


@pytest.mark.nightly
def test_requests_of_the_page_of_serving_get_what_it_says(tmp_path: Path) -> None:
    train, of_rows, by_column = commands_of("serving.md", tmp_path)
    run(train, tmp_path)
    port = str(free_port())
    command = [sys.executable, str(ROOT / "examples/serving/server.py"), str(tmp_path / "models"), "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert "Serves" in server.stdout.readline()
            requests = [line for line in of_rows.splitlines() if "curl" in line]
            photo = of_rows.splitlines()[0]
            answers = [json.loads(run(f"{photo}\n{line}".replace("8501", port), tmp_path)) for line in requests]
            (columns,) = json.loads(run(by_column.replace("8501", port), tmp_path)).values()
        finally:
            server.terminate()
    cherry, leaf = ["cherry", "leaf"], ["leaf", "cherry"]
    found = [[row["classes"] for row in answer["predictions"]] for answer in answers]
    assert found == [[cherry], [leaf, cherry], [cherry]]
    assert columns["classes"] == [cherry, leaf]
    for row in [row for answer in answers for row in answer["predictions"]]:
        assert sum(row["scores"]) == pytest.approx(1)


@pytest.mark.skipif(TOOLS is None, reason="needs a kernel: make test-docs")
def test_the_notebook_shows_a_dataset_in_a_kernel(tmp_path: Path) -> None:
    assert TOOLS is not None
    hand_made.write_dataset(tmp_path / "demo/shapes")
    notebook = tmp_path / "examples/shapes/look.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_bytes((ROOT / "examples/shapes/look.ipynb").read_bytes())
    command = [str(Path(TOOLS).with_name("jupyter")), "execute", "--inplace", str(notebook)]
    tools = {"PYTHONPATH": str(ROOT), "JUPYTER_PATH": str(Path(TOOLS).parents[1] / "share/jupyter")}
    done = subprocess.run(command, env={**os.environ, **tools}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    dataset, preview, train, batch = ([set(output["data"]) for output in cell["outputs"]] for cell in cells)
    assert dataset == train == [{"text/html", "text/plain"}]
    assert {"image/png", "text/plain"} <= preview[0]
    assert batch == [{"text/plain"}]


@pytest.mark.slow
@pytest.mark.skipif(TOOLS is None, reason="needs mlcroissant: make test-docs")
def test_mlcroissant_accepts_a_version_and_reads_its_splits_and_names(every_kind: tuple[Path, Published]) -> None:
    assert TOOLS is not None
    file = Path(every_kind[1].folder) / "croissant.json"
    done = subprocess.run([TOOLS, "-c", READ, str(file)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["errors"] == []
    assert all("recommended" in warning for warning in result["warnings"])
    assert result["read"]["splits"][0].startswith("{'splits/name': 'train'")
    assert result["read"]["label_names"][0] == "{'label_names/id': 0, 'label_names/name': b'cat'}"
    assert result["read"]["records"] == "GenerationError"  # it cannot read TFRecord files
