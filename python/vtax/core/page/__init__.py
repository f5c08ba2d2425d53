"""The page of a verb, and how it is shown: on the terminal, as HTML, as Markdown."""
