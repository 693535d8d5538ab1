"""Engines: one adapter for each solver that is not ours; wings state models, adapters get honest answers to them."""
