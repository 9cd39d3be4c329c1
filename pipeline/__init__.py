"""Recordmill: raw images and text in; a versioned, training-ready TFRecord dataset out."""
