"""The data sets on this machine: where they lie, how big they are, which expert names them."""
