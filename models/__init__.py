"""The models: one file each, the physics and its priors as a NumPyro program."""
