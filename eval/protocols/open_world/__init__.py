"""KOWL's protocol in an open world: the loop, what a predictor must have, what it leaves behind, and its measures."""
