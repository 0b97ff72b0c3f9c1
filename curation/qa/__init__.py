"""Quality assurance by people: questions to annotators, import of their answers, and decisions by votes."""
