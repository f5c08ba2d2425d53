"""Loads: what a machine serves, and what asks for it from the other end of its link."""
