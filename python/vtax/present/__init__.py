"""What a reader sees: the same results on a terminal, as a page, or in another tool's format.

Each module does one thing; import only the one that you need, so that a table loads no web page:

- `format`: numbers as text; `verdicts`, `families`, `explain`: the words
- `summary`: the answer in words; `trust`: whether to believe it; `facts`: machines side by side
- `page`: what a verb found; `pages`: the page of each verb; `figures`: figures as data
- `render_terminal`, `render_html`, `render_markdown`: each shows any page
- `terminal`: tables and progress; `html`: the comparison's page, and what pages share; `export`:
  files
"""
