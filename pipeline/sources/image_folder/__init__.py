"""Folders of images, with metadata or captions beside them."""
