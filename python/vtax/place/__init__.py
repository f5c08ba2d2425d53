"""What `vtax place advise` reads: the cores, threads, links and power of this host; predictors."""
