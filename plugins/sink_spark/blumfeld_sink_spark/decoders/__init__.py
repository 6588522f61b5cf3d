"""Decoders: bytes of a topic to rows of tables. Pure."""
