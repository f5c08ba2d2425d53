"""What a reader sees: the same results on a terminal, as a page, or in another tool's format.

Each module does one thing; import the one you need, so that a table does not load a web page:

- `format`: numbers as text; `verdicts`, `families`, `explain`: the words
- `summary`: the answer in words; `trust`: whether to believe it; `facts`: machines side by side
- `terminal`: tables and progress; `html`: self-contained pages and their figures; `export`: files
"""
