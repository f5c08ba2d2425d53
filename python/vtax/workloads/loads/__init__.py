"""Loads: servers in a machine, and their clients at the other end of its link."""
