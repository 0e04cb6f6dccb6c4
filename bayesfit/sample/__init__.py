"""From a log density to draws: starting points (least squares, modes, adaptive importance sampling), NUTS, independence
proposals, and the loop that runs the chains, with one driver for many small targets (bins) and one for a single large
target (a joint fit or a law); variational fits."""
