"""Measurements that no verb of ``blumfeld bench`` needs: parts of the broker alone, and the bench itself."""
