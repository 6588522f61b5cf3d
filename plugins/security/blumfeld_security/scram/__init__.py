"""SCRAM credentials: the section of the image, the command that changes them, and APIs 50 and 51."""
