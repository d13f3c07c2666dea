"""Evaluates experts: cases and answers in, verdicts and accuracies with confidence intervals out. The answer is taken out of
the model's text in `extract.py`; `audit.py` finds faulty training rows; few-shot examples are drawn by the seed
(`evaluate.py`).
"""
