"""Numbers of a run go in, a verdict and its remedy come out."""
