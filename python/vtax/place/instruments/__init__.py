"""What `vtax place measure` does around a repetition: load, service threads, a slow core."""
