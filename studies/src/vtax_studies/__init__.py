"""Studies: each regenerates the figures of a published paper and judges what the paper claims.

`vtax study` finds them by the entry points of this distribution and carries them out by `driver`.
"""
