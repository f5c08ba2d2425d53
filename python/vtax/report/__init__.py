"""What the user sees of a comparison: the table on the terminal and `report.html`.

Each module does one thing; import the one you need, so that a table does not load a web page:

- `table`: the table on the terminal; `html`: the page; `figures`: what Plotly draws on it
- `summary`: the answer in words; `trust`: whether to believe it; `facts`: machines side by side
- `format`: numbers as text; `verdicts`, `families`, `explain`: the words
"""
