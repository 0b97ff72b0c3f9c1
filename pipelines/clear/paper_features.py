"""The paper's names of a run's features, and the preset that it has for them."""

from __future__ import annotations

from ...curation.encoders.spec import OpenClip
from ...datasets.clear.facts import FEATURES, RELEASED
from ...datasets.features.networks import Network
from ...training.baselines.clear import presets
from ..feature_sets import EMBEDDING
from .config import ClearConfig
from .source_config import ReleaseSource


def paper_name(found: str, config: ClearConfig) -> str:
    """The paper's name of features that are trained on: retrieval vectors of CLIP's RN50 are "clip", and the sets of a release
    have different names there. A set that only shares a name with the paper's is prefixed "own"."""
    if isinstance(config.source, ReleaseSource) and found in config.source.features:
        return {released: name for name, released in RELEASED.items()}.get(found, found)
    encoder = config.encoder
    if found == EMBEDDING and isinstance(encoder, OpenClip) and (encoder.model, encoder.weights) == ("RN50", "openai"):
        return "clip"
    if found in FEATURES and found in config.features and not isinstance(config.features[found].encoder, Network):
        return f"own {found}"
    return found


def preset_of(config: ClearConfig, features: str) -> str:
    """The preset of the settings; for features of a network trained on ImageNet's labels its variant with the rate that the
    paper has for them (supplement, section 6), if there is one."""
    special = f"{config.baselines.preset}_imagenet"
    return special if paper_name(features, config) == "imagenet_rn50" and special in presets() else config.baselines.preset
