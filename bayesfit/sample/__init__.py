"""From a posterior density to its draws: where chains begin (least squares, modes, adaptive importance sampling), NUTS
and independence proposals, and one loop with two drivers, for many small targets and for one large one; variational
fits."""
