"""A database, or its CREATE TABLE texts, and a question go in, the part of the prompt that describes the database comes out.
Decides which tables, columns and values a question is shown (`rank.py`), and how they are written (`styles.py`).
"""
