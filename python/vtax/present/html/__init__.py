"""Self-contained web pages: `comparison`, and what draws figures in a browser."""
