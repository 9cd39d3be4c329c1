"""The transforms from raw to stored and from stored to model-ready, and the contract between them."""

if __name__ == "transforms":
    raise ImportError(
        "`transforms` is a folder of recordmill: import `recordmill.transforms`, or classes will exist twice"
    )
