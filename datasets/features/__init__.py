"""Feature vectors that were computed elsewhere and stored, one a sample: read as rows, and put beside the samples' rows."""
