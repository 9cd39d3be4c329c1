"""Exact statistics, vocabularies and tokenizers."""
