"""Lists the data sets on this machine and the manifests that name them (`find-datasets`). Writes nothing."""
