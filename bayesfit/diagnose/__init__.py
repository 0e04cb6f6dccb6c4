"""Whether to believe a result: predictive checks, convergence, identification, poolings, cross-validation, verdicts."""
