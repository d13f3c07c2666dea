"""Documents become token ids."""
