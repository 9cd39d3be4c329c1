"""One try at a build, and the finished work that the next one takes over."""
