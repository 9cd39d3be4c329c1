"""The end of a build, written down: in the output's history, as metrics, and to whom it concerns."""
