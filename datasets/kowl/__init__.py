"""KOWL-718: one label space over the Kinetics releases, and its open-world increments."""
