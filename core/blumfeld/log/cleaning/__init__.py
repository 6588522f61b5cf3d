"""The log cleaner's rules and passes: which log, which records stay. Pure."""
