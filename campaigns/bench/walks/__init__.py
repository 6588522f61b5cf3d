"""The files that a reader opens to follow a request."""
