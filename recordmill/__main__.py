"""`recordmill`, and `python -m recordmill`: the command line, where its packages are installed.

A machine that only reads datasets has none of them. It is told so in one line, so this module needs nothing but the
standard library.
"""

import importlib
import sys
from importlib.util import find_spec

# What every command or build needs; sentencepiece and tensorflow_text are for some specs.
NEEDED = "apache_beam psutil pyarrow pydantic rich tensorflow tensorflow_transform typer yaml".split()


def main() -> None:
    """Runs the command line; where its packages are missing, says so in one line and exits with 2."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        needed = f'pip install "recordmill[build]" (missing: {", ".join(missing)})'
        print(f"recordmill: the command needs the packages of a build: {needed}", file=sys.stderr)
        sys.exit(2)
    try:
        importlib.import_module("recordmill.pipeline.cli.commands").main()
    except KeyboardInterrupt:  # before the command has begun
        print("recordmill: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
