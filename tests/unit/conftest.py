"""A fork may delete the embedded stack; the tests of its parts go with it."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("local") else ["broker", "cosmos", "demo", "faults", "host"]
