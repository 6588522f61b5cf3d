"""An archive in the forms that other tools read. Rows stream: memory is that of the files that overlap in time."""
