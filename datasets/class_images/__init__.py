"""Pictures of named classes: folders and tars of classes, CIFAR-100."""
