"""How well it is answered: the speed suite, the quality campaign and their reports.

A figure is a `Spec` in its own file under ``specs/``; an instance comes from `instances`; `campaign` runs both, each
cell in a process of its own, and appends one row per cell to a journal that survives a kill at any moment.
"""
