"""Pipelines: `plan(config) -> Flow`, their TOML values, and the command line."""
