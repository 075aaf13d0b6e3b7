"""One suite a port, run on every implementation: a subclass gives the implementation as a fixture."""
