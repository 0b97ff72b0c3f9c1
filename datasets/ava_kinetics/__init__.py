"""AVA-Kinetics: persons, boxes and atomic actions of key frames of Kinetics clips, as strata for an ablation."""
