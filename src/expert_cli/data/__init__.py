"""Where rows are goes in, batches of token ids come out: `sources` -> `formats` -> `rows` -> `templates` -> `tokenize`
-> `store` -> `packing`.
"""
