"""Which data sets are on this machine, and which manifests name them (`find-datasets`). Writes nothing."""
