"""The topics of an archive: their offsets, and the records of a range of offsets."""
