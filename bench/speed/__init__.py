"""Speed suite: one pytest-benchmark test per timed spec."""
