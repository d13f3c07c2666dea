"""Where rows are goes in, batches of token ids come out: `sources.py` -> `reading.py` -> `columns.py` -> `rows.py` ->
`select.py` -> `templates` -> `encode.py` -> `store` -> `packing`.
"""
