"""The pipelines: one file for each kind of dataset."""
