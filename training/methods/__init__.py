"""Continual-learning methods for every benchmark, one per file. No method depends on what a sample is (features, image, clip).

A ``Method`` (``method.py``) combines the rule that selects the rows to train on among those seen so far, the function
``teach(lesson)`` that trains the model, the policy for exemplars, and the way classes are predicted. CLEAR's buffers are rules
only; the others pass a loss to ``lesson.fit``. To add a method, write a function that returns a ``Method`` and list it in
``registry.py``.
"""
