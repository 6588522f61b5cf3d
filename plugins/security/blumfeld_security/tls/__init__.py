"""TLS: configuration, keys and certificates, contexts and their reload, the byte layer, principals of certificates."""
