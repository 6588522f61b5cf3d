"""``python -m campaigns secured-loop``: produce and fetch in plain text, TLS, and SCRAM with ACLs, beside Kafka."""
