"""Stores of an archive: a folder or an object store, behind one contract. They know nothing of the files' content."""
