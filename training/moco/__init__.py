"""MoCo v2: contrastive pre-training on pictures without labels."""
