"""Control: observe, decide, act, record. Reads Delta and the cluster, writes the decision tables and the cluster."""
