"""The files of `blumfeld format`: cluster and node id, feature levels, and the first voters of a dynamic quorum."""
