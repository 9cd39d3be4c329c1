"""Hooks of mkdocs: pages link to each other as they do in the repository, also to README, examples and deploy.

The README is the site's first page. Files outside docs/ that pages link to are copied into the site; a link to a
folder leads to its README, or to the first of its files.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"""(\]\(|(?:href|src|srcset)=")([^)\s"#]+)((?:#[^)\s"]*)?[)"])""")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LINKED = ("*.md", "LICENSE", "deploy/**/*", "examples/**/*")
SEARCHED = yaml.safe_load((ROOT / "docs/search.yml").read_text())
FIRST = ("README.md", "dataset.yaml", "train.py")


def on_files(files: Files, config: Any) -> Files:
    """Adds the files outside docs/ to the site."""
    for path in sorted(path for pattern in LINKED for path in ROOT.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            inner = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, site_path(inner), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adds a page's words for the search, and points its links at the files' places in the site."""
    page.meta["tags"] = SEARCHED.get(page.file.src_uri, [])
    parts = CODE.split(markdown)
    return "".join(part if index % 2 else _linked(part, page.file.src_uri) for index, part in enumerate(parts))


def site_path(path: str) -> str:
    """Gives the place in the site of a file of the repository."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def repository_path(uri: str) -> str:
    """Gives the file of the repository that a page of the site is made of."""
    if uri == "index.md":
        return "README.md"
    return f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri


def _linked(text: str, uri: str) -> str:
    folder = posixpath.dirname(repository_path(uri))

    def lead(link: re.Match[str]) -> str:
        before, target, after = link.groups()
        if "://" in target or target.startswith(("mailto:", "#", "data:")):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if (ROOT / path).is_dir():
            path = _first_file(path)
        return f"{before}{posixpath.relpath(site_path(path), posixpath.dirname(uri) or '.')}{after}"

    return LINK.sub(lead, text)


def _first_file(folder: str) -> str:
    names = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file())
    return f"{folder}/{next((name for name in FIRST if name in names), names[0])}"
