"""A trained expert or its base model goes in with prompts, answers come out; with neutral texts, what was forgotten. Decides
where an answer ends (`generate.py`), and which texts are neutral (`forgetting.py`).
"""
