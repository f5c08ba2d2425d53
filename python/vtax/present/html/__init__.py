"""Self-contained pages: `comparison`, `analysis_page`, and what draws the figures in a browser."""
