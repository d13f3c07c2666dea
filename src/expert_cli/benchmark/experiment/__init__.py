"""Short runs in fresh processes, against each other or over a grid of settings, with their uncertainty."""
