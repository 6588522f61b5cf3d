"""An archive in operation: how it stands, and which files nothing needs any more."""
