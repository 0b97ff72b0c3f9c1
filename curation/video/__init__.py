"""Videos: what a file is, which of its frames are wanted, and those frames exactly, as JPEGs."""
