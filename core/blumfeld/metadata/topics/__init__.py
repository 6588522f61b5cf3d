"""Commands on topics and configuration. Pure."""
