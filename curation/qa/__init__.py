"""Quality assurance by people: what is sent to annotators, what comes back, and what the votes decide."""
