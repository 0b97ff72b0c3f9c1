"""KOWL's open-world protocol: the loop, the interface of predictors, stored predictions, and measures."""
