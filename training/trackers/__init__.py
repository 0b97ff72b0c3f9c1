"""Where the course of trainings is shown: TensorBoard, Weights & Biases, MLflow, or a tracker of your own."""
