"""The job around the graphs: from raw rows to a published version, and from a version to batches."""

if __name__ == "pipeline":
    raise ImportError(
        "`pipeline` is a folder of recordmill: import `recordmill.pipeline`, "
        "so that there is one copy of every class, such as `UserError`"
    )

VERSION = "0.1.0"  # the version of Recordmill
