"""A dated photo album for the demo, made of photographs and video frames that ship inside Python packages."""
