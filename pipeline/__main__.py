"""`python -m pipeline` is `recordmill`."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
