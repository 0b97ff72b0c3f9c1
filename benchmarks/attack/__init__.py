"""The attack: hostile files, kills, full disks, flipped bits and a server that lies; see ``__main__.py``."""
