"""A path, a URL or a hub id goes in, the files that hold its rows come out, in order (`data_rows.py`). Decides which
files belong to a split (`split_files.py`).
"""
