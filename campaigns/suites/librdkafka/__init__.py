"""librdkafka's own tests against three nodes (docs/suites.md)."""
