"""recordmill verify: a published version against its manifest, to the last bit."""
