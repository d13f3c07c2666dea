"""Estimates steps, memory, time and cost of a plan, each with its error and source (`train --plan`), without training."""
