"""Tests of the package ``commands.common``."""
