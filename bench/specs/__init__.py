"""One file per group of figures; each defines ``SPECS``, a tuple of `balance.bench.spec.Spec`."""
