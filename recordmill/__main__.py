"""`recordmill` and `python -m recordmill`: starts the command line, or names the extra to install in one line.

Imports only the standard library: a machine that just reads datasets has no packages of the command line.
"""

import sys

from recordmill.pipeline import VERSION
from recordmill.pipeline.cli.extras import CLI, missing


def main() -> None:
    """Runs the command line; without its packages, answers `--version` and otherwise exits with 2 and one line."""
    if sys.argv[1:] == ["--version"]:
        print(f"recordmill {VERSION}")
        return
    if names := missing(CLI):
        extras = 'pip install "recordmill[cli]", or "recordmill[build]" to build datasets'
        print(f"recordmill: the command line needs an extra: {extras} (missing: {', '.join(names)})", file=sys.stderr)
        sys.exit(2)
    try:
        from recordmill.pipeline.cli.commands import main as run

        run()
    except KeyboardInterrupt:  # before the command has begun
        print("recordmill: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
