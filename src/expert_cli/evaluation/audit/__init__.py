"""Training rows and cases go in, what is wrong with them comes out, checked by running their answers. Decides what makes a
row dead, one entry a check (`findings.py`).
"""
