"""Raw rows become checked rows: columns, validation, filters, weights, the split."""
