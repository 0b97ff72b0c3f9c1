"""AVA-Kinetics: persons, boxes and atomic actions in key frames of Kinetics clips, as strata for an ablation."""
