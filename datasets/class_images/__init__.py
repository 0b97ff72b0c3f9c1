"""Pictures of named classes: folders and tars of class folders, CIFAR-100."""
