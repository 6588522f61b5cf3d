"""The network between simulated machines: sites, links, streams, and the transport on it."""
