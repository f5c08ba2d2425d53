"""What `vtax place advise` reads: cores, threads, interrupts, links, memory and power of this host;
predictors.
"""
