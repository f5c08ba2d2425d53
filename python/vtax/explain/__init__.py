"""`vtax explain`: the bill of a comparison, an answer to why."""
