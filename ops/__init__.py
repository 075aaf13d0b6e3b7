"""The operators' command line: looks into queues and database, brings parked messages back, checks the invariants."""
