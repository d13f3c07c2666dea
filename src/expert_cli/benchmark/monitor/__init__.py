"""A run that is watched: what is sampled beside it, what holds it back, and the remedy."""
