"""The archive beside Spark's own way, on the same feed and cores."""
