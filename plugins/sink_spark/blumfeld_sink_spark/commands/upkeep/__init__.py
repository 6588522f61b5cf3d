"""Verbs that check and maintain an archive. They start no Spark."""
