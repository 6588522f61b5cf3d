"""Which wheels a build consists of: required, found, resolved or locked, and checked against the manifest."""
