"""Exports of an archive in the forms of other tools. Rows stream: memory is that of the files that overlap in time."""
