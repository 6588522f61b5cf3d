"""Test suites of other projects against nodes of this build (docs/suites.md)."""
