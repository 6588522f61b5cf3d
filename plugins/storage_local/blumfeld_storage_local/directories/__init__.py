"""Log directories: whose they are, what lies in them, what their checkpoints say, which one a log gets."""
