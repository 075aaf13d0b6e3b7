"""The real handlers on pure state machines, under a virtual clock and a seeded scheduler."""
