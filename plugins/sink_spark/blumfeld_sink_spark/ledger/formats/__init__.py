"""Delta and Iceberg tables that follow the ledger."""
