"""Models on stored features, initialised from a generator of their own."""
