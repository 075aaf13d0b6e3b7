"""Real processes under a seeded plan of faults, and the proof of what came out."""
