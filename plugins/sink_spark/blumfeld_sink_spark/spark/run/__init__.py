"""One run of an archive: where it begins, which reader it takes, its progress, and its wait for a lost broker."""
