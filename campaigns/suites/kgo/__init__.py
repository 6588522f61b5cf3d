"""kgo's own test suite against three nodes of this build (docs/suites.md)."""
