"""Tests of the package ``spark``."""
