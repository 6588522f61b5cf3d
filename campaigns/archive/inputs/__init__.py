"""Input and surroundings that an archive cannot work with."""
