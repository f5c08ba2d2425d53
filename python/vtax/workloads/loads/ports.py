"""The ports at which servers of loads listen; a user network forwards no others."""

from __future__ import annotations

HTTP = 8080
IPERF = 5201
NETPERF, NETPERF_DATA = 12865, 12866
"""All ports are above 1023, so that no capability is needed to listen."""

ALL = (HTTP, IPERF, NETPERF, NETPERF_DATA)
