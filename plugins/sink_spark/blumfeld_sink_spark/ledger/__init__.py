"""The ledger decides which files and offsets are in the archive. This package holds the commit records and their rules;
its rooms write, check and maintain them.
"""
