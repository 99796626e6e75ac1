"""The catalogue: every configuration is there, and each script keeps the rules of the house."""

from __future__ import annotations

import ast
from pathlib import Path

from gpuwatch.experiment.probing.probe_scripts import find_probes, probe_folder
from tests.every import every

CATALOGUE = {
    "memory": "default growth growth-env limit fraction session-growth async-allocator late-config mixed-growth"
    " growth-and-limit grow-to-limit session-grow-to-limit",
    "visibility": "cpu-only visible-env visible-invalid-first visible-late visible-api session-visible misspelt-env",
    "placement": "auto manual hard-missing soft-missing no-kernel-hard no-kernel-soft session-placement session-soft"
    " session-no-kernel",
    "devices": "virtual mirrored towers model-parallel multi-worker local-server",
    "sharing": "contention occupied",
    "limits": "largest-batch fragmentation",
    "torch": "torch-map torch-visible torch-set-device torch-fraction torch-oom",
}
VERDICTS = {
    **dict.fromkeys(["soft-missing", "no-kernel-soft", "visible-invalid-first"], "fallback"),
    **dict.fromkeys(["contention", "occupied", "fragmentation", "torch-oom"], "oom"),
}
PATHS = sorted(probe_folder().glob("*.py"))
SCRIPTS = [path for path in PATHS if not path.name.startswith("_")]


def test_the_catalogue_is_complete() -> None:
    found: dict[str, set[str]] = {}
    for script in find_probes().values():
        found.setdefault(script.group, set()).add(script.name)
    assert found == {group: set(names.split()) for group, names in CATALOGUE.items()}


@every(find_probes())
def test_a_header_tells_how_the_probe_ends_and_teaches(name: str) -> None:
    script = find_probes()[name]
    assert script.verdict == VERDICTS.get(name, "ok")
    assert script.tier in ("driver", "driver-first", "plugin", "any")
    assert len(script.summary) > 80
    assert script.framework == ("torch" if script.group == "torch" else "tensorflow")


@every(find_probes())
def test_a_probe_that_cannot_do_other_work_says_so(name: str) -> None:
    script = find_probes()[name]
    assert script.own_work == ("probe.run(" not in script.path.read_text())


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


@every(PATHS)
def test_loading_a_script_does_nothing(path: Path) -> None:
    """A template process loads the framework once, and scripts in forks of it: no work at module level."""
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, allowed) or _is_main(node):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # the docstring
        assert isinstance(node, (ast.Assign, ast.AugAssign)), ast.unparse(node)
        calls = [ast.unparse(part.func) for part in ast.walk(node.value) if isinstance(part, ast.Call)]
        assert set(calls) <= {"re.compile"}, ast.unparse(node)


@every(SCRIPTS)
def test_a_script_has_the_two_functions_and_leaves_the_import_to_main(path: Path) -> None:
    tree = ast.parse(path.read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in ("configure", "work"):
        assert [argument.arg for argument in functions[name].args.args][1:] == ["probe"]
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not imported & {"tensorflow", "torch", "keras", "numpy"}
    literals = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name in {"CONFIG", "ENVIRONMENT"} & set(literals):
        ast.literal_eval(literals[name])
    (main,) = (node for node in tree.body if _is_main(node))
    arguments = "CONFIG, configure, work" + (", ENVIRONMENT" if "ENVIRONMENT" in literals else "")
    assert ast.unparse(main.body[0]) == f"gpuwatch_probe.main({arguments})"
