"""A plan goes in, its steps, memory, time and cost come out, each with its error and its source (`train --plan`).
Trains nothing.
"""
