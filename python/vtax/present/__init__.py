"""What a reader sees: the same results on a terminal, as a page, or in another tool's format.

Each module does one thing; import only the one that you need, so that a table loads no web page:

- `format`: numbers as text; `verdicts`, `families`, `explain`: the words
- `summary`: the answer in words; `trust`: whether to believe it; `facts`: machines side by side
- `figures`: figures as data; `terminal`: tables and progress; `html`: self-contained pages
- `export`: files
"""
