"""May it be believed: predictive checks, convergence, identification, poolings between bins, cross-validation."""
