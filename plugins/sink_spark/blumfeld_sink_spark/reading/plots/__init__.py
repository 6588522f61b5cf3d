"""Pictures of an archive, as PNG or SVG with times in UTC. Each picture answers one question."""
