"""Pictures of an archive that people look at: PNG or SVG, times in UTC, one question each."""
