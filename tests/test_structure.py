"""The shape of the code: rooms, sizes of files, classes and functions, and how many arguments calls take."""

import ast
from pathlib import Path

import pytest

import bayesfit

ROOT = Path(__file__).parent.parent
FOLDERS = [path for path in sorted((ROOT / "bayesfit").iterdir()) if path.is_dir() and path.name != "__pycache__"]
ROOMS = [path for path in FOLDERS if not path.is_symlink()]
FILES = [file for folder in FOLDERS for file in sorted(folder.resolve().glob("*.py"))]
TREES = {file: ast.parse(file.read_text()) for file in FILES}
FUNCTIONS = [
    (file, node)
    for file, tree in TREES.items()
    for node in ast.walk(tree)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
]
IMPOSED = {"_print_own"}  # takes the arguments of `warnings.showwarning`
PUBLIC = {*bayesfit.__all__, *(name for room in bayesfit._ROOMS for name in vars(getattr(bayesfit, room)))}
COMMANDS = {"app", "command"}  # decorators of the command line, whose arguments are its options


def body_lines(node):
    """Lines of a function without its docstring."""
    docstring = node.body[0] if ast.get_docstring(node) is not None else None
    return node.end_lineno - node.lineno + 1 - (docstring.end_lineno - docstring.lineno + 1 if docstring else 0)


def named(file, node):
    return f"{file.relative_to(ROOT)}:{node.lineno} {getattr(node, 'name', '')}"


def test_rooms():
    assert len(ROOMS) <= 14
    assert {path.name for path in FOLDERS} - {path.name for path in ROOMS} == {"models", "pipelines"}
    assert [path.name for path in (ROOT / "bayesfit").glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_each_room_says_what_it_is_for(room):
    tree = ast.parse((room / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    public = tree.body[1:] if room.name in bayesfit._ROOMS else []
    found_when_used = [node for node in public if isinstance(node, ast.FunctionDef)]  # names of rooms above
    assert all(isinstance(node, ast.ImportFrom | ast.Import) for node in public if node not in found_when_used)
    assert [node.name for node in found_when_used] in ([], ["__getattr__"])
    assert len(tree.body) == 1 + len(public)


def test_files_are_short():
    lines = {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in FILES}
    assert {str(file): count for file, count in lines.items() if count > 300} == {}


def test_classes_are_small():
    classes = [(file, n) for file, tree in TREES.items() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    assert [named(*found) for found in classes if found[1].end_lineno - found[1].lineno + 1 > 120] == []


def test_functions_are_short():
    assert [named(*found) for found in FUNCTIONS if body_lines(found[1]) > 40] == []
    assert sum(body_lines(node) <= 18 for _, node in FUNCTIONS) >= 0.9 * len(FUNCTIONS)


def test_calls_take_few_arguments():
    """More than five stand in a record; public verbs and commands have settings by keyword."""

    def arguments(node):
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        return [argument.arg for argument in given if argument.arg not in ("self", "cls")]

    def command(node):
        return any(
            isinstance(inner, ast.Name) and inner.id in COMMANDS for d in node.decorator_list for inner in ast.walk(d)
        )

    many = [found for found in FUNCTIONS if len(arguments(found[1])) > 5 and not command(found[1])]
    assert [named(*found) for found in many if found[1].name not in {*PUBLIC, "__init__", *IMPOSED}] == []


def test_poolings_are_classes_and_no_string_says_which():
    compared = [
        named(file, node)
        for file, tree in TREES.items()
        if file.parent in ROOMS
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        if isinstance(node.left, ast.Attribute) and node.left.attr == "kind"
    ]
    assert compared == []
