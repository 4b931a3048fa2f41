"""Which layers get new filters, and from what: for every framework alike, and without one."""
