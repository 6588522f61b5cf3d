"""The store of tiered storage against a real S3 server on this machine."""
