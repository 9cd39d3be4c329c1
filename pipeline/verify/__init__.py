"""`recordmill verify`: a published version against its manifest, to the last bit; and what of it can be mended."""
