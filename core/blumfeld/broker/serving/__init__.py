"""Serving: from a frame to its handler and back to an answer, in slices where a request is large."""
