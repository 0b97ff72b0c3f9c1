"""Videos: probe files, choose frames by plans, and decode exactly these frames to JPEGs."""
