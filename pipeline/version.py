"""The version of Recordmill."""

VERSION = "0.1.0"
