"""From a posterior density to its draws: where chains begin (least squares, modes, importance sampling), NUTS,
independence proposals, the scheduler of many small targets, NumPyro's driver for one large one, variational fits."""
