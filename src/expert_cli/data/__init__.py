"""From data files to batches of token ids: `sources.py` -> `reading.py` -> `columns.py` -> `rows.py` -> `select.py` ->
`templates` -> `encode.py` -> `store` -> `packing`.
"""
