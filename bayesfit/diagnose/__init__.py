"""May it be believed: predictive checks, convergence, identification, links between bins, cross-validation."""
