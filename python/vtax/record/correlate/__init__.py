"""`vtax correlate`: which events of a recording go together."""
