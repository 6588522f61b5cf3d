"""What is in the archive: commit records, their rules, publishing, leases, table formats."""
