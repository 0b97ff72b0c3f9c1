"""Open-world predictors on stored features, one file each. `eval.protocols.open_world.predictor` defines their interface."""
