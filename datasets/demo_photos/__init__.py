"""A dated photo album for the demo, made from photographs and video frames that are included in Python packages."""
