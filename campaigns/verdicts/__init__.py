"""The same verdicts as Apache Kafka: generated ACLs, principals, hosts and requests, played over the wire to both."""
