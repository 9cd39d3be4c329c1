"""recordmill init: looks at data and writes a dataset.yaml."""
