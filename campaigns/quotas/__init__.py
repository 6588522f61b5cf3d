"""``python -m campaigns quotas``: quotas over a minute, with librdkafka and Java, and what a neighbour sees of them."""
