"""UCF101: class folders, the official lists, names of clips. See ``README.md``."""
