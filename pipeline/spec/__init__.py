"""The user's dataset.yaml: read, checked, explained."""
