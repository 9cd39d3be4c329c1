"""Random changes of training images, by NumPy and, where it is installed, OpenCV: a class holds options and work."""
