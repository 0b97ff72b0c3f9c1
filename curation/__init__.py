"""The engine: stages, store, runner, shards, and the stages that several benchmarks share. Knows no benchmark."""
