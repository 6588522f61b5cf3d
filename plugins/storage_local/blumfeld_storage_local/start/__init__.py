"""From a directory as a stop or a crash left it to a log that serves."""
