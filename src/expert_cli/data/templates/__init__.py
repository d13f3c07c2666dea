"""Turns rows into documents: pieces of text that are trained or not. `chat.py` formats conversations and finds their answers;
`mask.py` finds the answers in whole texts.
"""
