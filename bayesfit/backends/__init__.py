"""NumPy or JAX behind one protocol, for code that is written once against the Python array API."""
