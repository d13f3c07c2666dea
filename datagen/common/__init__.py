"""What the generators share: files, columns of made-up domains, conditions, English."""
