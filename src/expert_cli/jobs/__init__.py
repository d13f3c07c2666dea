"""A manifest and the machines that shall train it go in, one file for their scheduler comes out; nothing is started.
Decides what an exit code means to each scheduler (its template in `files/`), and which options it takes (`registry.py`).
"""
