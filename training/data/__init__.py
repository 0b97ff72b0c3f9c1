"""What a sample is: features, images, clips."""
