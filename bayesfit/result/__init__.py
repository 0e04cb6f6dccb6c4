"""The result as a DataTree: build, save, load, summarise."""
