"""`recordmill`, and `python -m recordmill`: the command line.

A training machine lacks its packages, and gets one line with the extra to install: before that, only the standard
library is imported.
"""

import sys

from recordmill.pipeline import VERSION
from recordmill.pipeline.cli.extras import CLI, missing


def main() -> None:
    """Runs the command line; if packages are missing, prints one line and exits with 2."""
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
