"""Open-world predictors on stored features: one file each, met by `eval.protocols.predictor` without being known to it."""
