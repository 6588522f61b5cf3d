"""What a build writes: the file, the bill of materials, and what brings the file to a machine."""
