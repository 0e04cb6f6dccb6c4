"""Arrays as tables and back, in NumPy and in compiled programs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesfit.compute.rows import Layout

ITEMS = 5


class Tree(NamedTuple):
    """Arrays of three types, one without a column, and none at all."""

    numbers: np.ndarray
    matrices: np.ndarray
    counts: dict
    empty: np.ndarray
    nothing: None = None


@pytest.fixture
def tree():
    random = np.random.default_rng(1)
    counts = {"int": np.arange(ITEMS, dtype=np.int32), "bool": np.arange(ITEMS) > 2}
    return Tree(random.random(ITEMS), random.random((ITEMS, 2, 3)), counts, np.zeros((ITEMS, 0)))


def same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_there_is_one_table_of_each_type_with_a_row_for_each_item(tree):
    tables = Layout.of(tree).tables(tree)
    assert {name: (table.shape, table.dtype.name) for name, table in tables.items()} == {
        "float64": ((ITEMS, 7), "float64"),
        "int32": ((ITEMS, 1), "int32"),
        "bool": ((ITEMS, 1), "bool"),
    }


def test_tables_give_the_arrays_back(tree):
    layout = Layout.of(tree)
    same(layout.arrays(layout.tables(tree)), tree)
    rows = {name: table[1:3] for name, table in layout.tables(tree).items()}
    same(layout.arrays(rows), jax.tree.map(lambda leaf: leaf[1:3], tree))


def test_compiled_programs_read_and_write_tables(tree):
    layout = Layout.of(tree)
    with jax.enable_x64(True):
        twice = jax.jit(lambda tables: layout.tables(jax.tree.map(lambda leaf: leaf + leaf, layout.arrays(tables))))
        found = layout.arrays(jax.tree.map(np.asarray, twice(layout.tables(jax.tree.map(jnp.asarray, tree)))))
    same(found, jax.tree.map(lambda leaf: leaf + leaf, tree))


def test_blank_tables_hold_zeros(tree):
    layout = Layout.of(tree)
    same(layout.arrays(layout.blank(ITEMS)), jax.tree.map(np.zeros_like, tree))


def test_another_layout_is_another_program(tree):
    assert str(Layout.of(tree)) != str(Layout.of(tree._replace(matrices=np.zeros((ITEMS, 3, 2)))))
