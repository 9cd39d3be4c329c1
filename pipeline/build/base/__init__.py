"""The parts of the live version that a build takes over."""
