"""Files of a run, and what machines and host exchange."""
