"""A trained expert or its base model goes in with prompts, answers come out. Decides where an answer ends
(`generate.py`).
"""
