"""Sweeps: a workload simulated on every machine and with every parameter that a design names."""
