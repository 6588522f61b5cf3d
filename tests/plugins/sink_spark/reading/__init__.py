"""Tests of the package ``reading``."""
