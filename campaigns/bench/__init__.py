"""Benches that no verb of ``blumfeld bench`` needs: parts of the broker alone, and checks of the bench itself."""
