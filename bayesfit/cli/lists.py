"""`bayesfit models`, `noises`, `pipelines`: lists of what can be chosen."""

from __future__ import annotations

import typer

from bayesfit.cli.app import app


@app.command()
def models() -> None:
    """List the models, with their formulas."""
    from bayesfit.modelling.registry import describe_model, list_models

    for name in list_models():
        description, formula = describe_model(name)
        typer.echo(f"{name:24}{description}\n{'':24}{formula}")


@app.command()
def noises() -> None:
    """List the noise models, with their formulas."""
    from bayesfit.modelling.noise import NOISES

    for name, found in NOISES.items():
        typer.echo(f"{name:24}{found.description}\n{'':24}{found.formula}")


@app.command()
def pipelines() -> None:
    """List the pipelines."""
    from bayesfit.modelling.registry import get_pipeline, list_pipelines

    for name in list_pipelines():
        typer.echo(f"{name:24}{get_pipeline(name).description}")
