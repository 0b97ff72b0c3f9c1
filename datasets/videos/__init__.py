"""Videos of any kind: the common row, the inventory of a copy, and sources for your own videos."""
