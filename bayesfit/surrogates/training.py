"""One step of training an ensemble of small networks: compiled by JAX as one function of static configuration, or the
same in NumPy. In double precision the two agree to rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayesfit.backends.choice import get_backend
from bayesfit.compute.errors import warn

DECAY, DECAY_OF_SQUARES, SMALL = 0.9, 0.999, 1e-8  # Kingma & Ba, arXiv:1412.6980
LAST = 0.01  # of the learning rate, at the last step

Layers = list[np.ndarray]  # weights (member, out, in) and biases (member, out) of each layer, in turn
Rows = Float[Any, "run any"]


class Config(NamedTuple):
    """An ensemble of `members` networks with `depth` hidden layers of `width`, trained in so many `steps` of Adam, the
    learning `rate` falling to a hundredth as a cosine."""

    members: int = 5
    width: int = 32
    depth: int = 2
    steps: int = 3000
    rate: float = 1e-2


class State(NamedTuple):
    """Where training is: the layers, the running means of their slopes and of these squared, and the steps made."""

    layers: Layers
    mean: Layers
    square: Layers
    step: Any


class Data(NamedTuple):
    """What is learnt: coordinates `x` (run, param), values `y` (run, component), and the weight of each run for each
    member, 0 where it is held out."""

    x: Rows
    y: Rows
    weight: Float[Any, "member run"]


def begin(config: Config, inputs: int, outputs: int, seed: int) -> State:
    """Networks as equinox begins them, in double precision."""
    import equinox as eqx

    def network(key: Any) -> eqx.nn.MLP:
        return eqx.nn.MLP(inputs, outputs, config.width, config.depth, activation=jnp.tanh, key=key)

    made = eqx.filter_vmap(network)(jax.random.split(jax.random.key(seed), config.members))
    layers = [np.asarray(array, float) for layer in made.layers for array in (layer.weight, layer.bias)]
    zeros = [np.zeros_like(array) for array in layers]
    return State(layers, zeros, [array.copy() for array in zeros], 0)


def forward(layers: Layers, x: Rows, xp: Any) -> list[Any]:
    """The values (member, run, width) behind each layer, the input's first, the output's last."""
    values = [xp.broadcast_to(x, (layers[0].shape[0], *x.shape))]
    for place in range(0, len(layers), 2):
        value = values[-1] @ xp.swapaxes(layers[place], -1, -2) + layers[place + 1][:, None, :]
        values.append(value if place == len(layers) - 2 else xp.tanh(value))
    return values


def loss(layers: Layers, data: Data, xp: Any = jnp) -> Any:
    """The sum over members of their mean squared errors."""
    squares = xp.mean((forward(layers, data.x, xp)[-1] - data.y) ** 2, axis=-1)
    return xp.sum(xp.sum(data.weight * squares, axis=-1) / xp.sum(data.weight, axis=-1))


def step_uncompiled(state: State, data: Data, config: Config) -> State:
    """One step, by JAX's derivatives and optax's Adam."""
    import optax

    slopes = jax.grad(loss)(state.layers, data)
    adam = optax.scale_by_adam(DECAY, DECAY_OF_SQUARES, SMALL)
    before = optax.ScaleByAdamState(jnp.asarray(state.step, jnp.int32), state.mean, state.square)
    change, after = adam.update(slopes, before)
    rate = _rate(state.step, config, jnp)
    layers = [layer - rate * each for layer, each in zip(state.layers, change, strict=True)]
    return State(layers, after.mu, after.nu, after.count)


Step = Callable[[State, Data, Config], State]
step_compiled: Step = partial(jax.jit, static_argnames="config")(step_uncompiled)


def _rate(step: Any, config: Config, xp: Any) -> Any:
    return config.rate * (LAST + (1.0 - LAST) * 0.5 * (1.0 + xp.cos(xp.pi * step / config.steps)))


def step_numpy(state: State, data: Data, config: Config) -> State:
    """One step, the derivatives written out."""
    slopes, step = _slopes(state.layers, data), state.step + 1
    mean = [DECAY * m + (1.0 - DECAY) * s for m, s in zip(state.mean, slopes, strict=True)]
    pairs = zip(state.square, slopes, strict=True)
    square = [DECAY_OF_SQUARES * v + (1.0 - DECAY_OF_SQUARES) * s**2 for v, s in pairs]
    rate, layers = _rate(state.step, config, np), []
    for layer, m, v in zip(state.layers, mean, square, strict=True):
        root = np.sqrt(v / (1.0 - DECAY_OF_SQUARES**step)) + SMALL
        layers.append(layer - rate * (m / (1.0 - DECAY**step)) / root)
    return State(layers, mean, square, step)


def _slopes(layers: Layers, data: Data) -> Layers:
    """The slopes of the loss, from the last layer to the first."""
    values = forward(layers, data.x, np)
    weight = data.weight / data.weight.sum(axis=-1, keepdims=True)
    back = 2.0 * weight[..., None] * (values[-1] - data.y) / data.y.shape[-1]
    found: Layers = []
    for place in range(len(layers) - 2, -1, -2):
        before = values[place // 2]
        found = [np.swapaxes(back, -1, -2) @ before, back.sum(axis=1), *found]
        back = (back @ layers[place]) * (1.0 - before**2)  # of the input's layer it is not used
    return found


def trained(state: State, data: Data, config: Config, compiled: Step = step_compiled) -> Layers:
    """The layers after all steps: compiled, or in NumPy where that is the chosen backend. Where compilation fails, it
    warns and goes on in NumPy. One program of all steps would take longer: XLA divides no loop over cores."""
    if get_backend().name != "numpy":
        try:
            on_device = jax.device_put(data)
            begun = compiled(state._replace(step=np.int32(0)), on_device, config)
        except Exception as error:  # whatever a compiler fails with
            warn(f"training is not compiled and takes longer, in NumPy: {type(error).__name__}: {error}")
        else:
            return [np.asarray(layer) for layer in _after(begun, on_device, config, compiled).layers]
    return _after(state, data, config, step_numpy).layers


def _after(state: State, data: Data, config: Config, step: Step) -> State:
    """The state after all steps."""
    for _ in range(int(state.step), config.steps):
        state = step(state, data, config)
    return state
