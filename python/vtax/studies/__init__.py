"""Studies: each regenerates the figures of a published paper and judges what the paper claims."""
