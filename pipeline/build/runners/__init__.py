"""The clusters that jobs run on: their REST interfaces, job servers and workers, without importing Beam."""
