"""The version of the schema."""

VERSION = 1
"""Raised with each change that the library of the version before would not understand."""
