"""Serving: from a frame to its handler and back to an answer, in steps where a request is large."""
