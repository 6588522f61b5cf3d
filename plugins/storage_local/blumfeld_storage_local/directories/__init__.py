"""Log directories: which node owns them, which logs lie in them, what their checkpoints say, which one a log gets."""
