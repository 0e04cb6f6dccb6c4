"""The log density: of one bin with its amplitudes integrated out, of all bins together, of a law in q."""
