"""Records written to a topic: an archive replayed, or captured files loaded."""
