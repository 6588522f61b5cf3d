"""The workload ``secured``: a cluster with SASL and ACLs that change while nodes fail."""
