"""Verbs that send messages to a topic: captures, or archived records."""
