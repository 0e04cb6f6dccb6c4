"""The contracts and the choices: models, pipelines, noise models, priors, laws in q, settings, and their registry."""
