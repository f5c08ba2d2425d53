"""Recording: one row per interval, natively or in an environment, in a run folder.

The rows are made by the program `vtax-host`; docs/record.md says what is in them.
"""
