"""Self-contained pages: `comparison`, `analysis_page` and what Plotly draws on them."""
