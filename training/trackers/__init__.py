"""Trackers, which show the progress of trainings: TensorBoard, Weights & Biases, MLflow, or a custom one."""
