"""Parts of the suite: the driver of a testee, the proxy, and the database of a cluster."""
