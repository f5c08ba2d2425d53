"""Figures as data: plain dictionaries in the form of Plotly, with CSS variables as colours."""
