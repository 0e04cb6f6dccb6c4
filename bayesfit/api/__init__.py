"""The verbs that users call: fit, point_estimate, series, law, compare, stokes_einstein."""
