"""Where an archive lies: a folder or an object store, behind one contract. Knows nothing of what the files hold."""
