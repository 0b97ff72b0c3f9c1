"""Published datasets in the forms that other tools read."""
