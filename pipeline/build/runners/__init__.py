"""Clusters for jobs: their REST interfaces, job servers and workers, without Beam."""
