"""Pure decisions: values in, values out. No I/O, clock, environment or randomness."""
