"""From frames of photons to g2: how many pairs were seen at each delay, how many are expected, and their covariance."""
