"""From data files to batches of token ids: `sources.py` -> `select.py`, which drives `reading.py` -> `columns.py` -> `rows.py`
-> `templates` -> `encode.py` and then chooses rows -> `store` -> `packing`.
"""
