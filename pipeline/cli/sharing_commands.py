"""The commands on versions that share files with others; `commands` registers them."""

from recordmill.pipeline.cli.arguments import AnyVersion, DatasetFolder
from recordmill.pipeline.cli.screen import count, print_line


def materialize(dataset: DatasetFolder, version: AnyVersion = "live") -> None:
    """Make a version whole, so that its folder can be copied: all its files in it."""
    from recordmill.pipeline.versions import materialize as materializing

    done = materializing.materialize(dataset, version)
    name = done.manifest.version
    if not done.files:
        print_line(f"{name} is whole already: all its files lie in its own folder")
        return
    print_line(f"{name} is whole now: {count(done.files, 'file')} brought into its folder, {done.copied_bytes:,} bytes")
