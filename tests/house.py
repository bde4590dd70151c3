"""Measures of ``engine/``: modules, lines, import edges and cycles.

``make house`` prints them; ``tests/unit/test_house.py`` holds the limits. Imports inside functions
and imports for types count like any other.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1] / "engine"
LONGEST_FUNCTION = 40
"""Lines of a function's body, without signature and docstring."""
_ALIAS = re.compile(r"[A-Z][a-z]\w+")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """One file of Python."""

    name: str
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The file, parsed."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree that a measure looks at; most are parts of expressions."""
        wanted = (ast.Module, ast.ClassDef, *_FUNCTIONS, ast.Import, ast.ImportFrom)
        found: list[ast.AST] = []
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop(0)
            if isinstance(node, wanted):
                found.append(node)
            waiting += [child for child in ast.iter_child_nodes(node) if _has_blocks(child)]
        return found

    @property
    def lines(self) -> int:
        """Lines of the file."""
        return self.text.count("\n")

    @property
    def package(self) -> str:
        """The package it stands in; a package stands in itself."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def docstring(self) -> str:
        """The docstring, or an empty text."""
        return ast.get_docstring(self.tree) or ""

    def imports(self) -> Iterator[tuple[str, str | None]]:
        """Yield modules it imports, each with the name that is taken from it."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((alias.name, None) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{self.name} imports relatively"
                yield from ((node.module or "", alias.name) for alias in node.names)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Yield functions with the lines of their bodies."""
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                yield f"{self.name}.{node.name}", lines

    def classes(self) -> Iterator[str]:
        """Yield names of its classes."""
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                yield node.name

    def aliases(self) -> Iterator[str]:
        """Yield names of its public type aliases."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                target = node.targets[0]
            elif isinstance(node, ast.AnnAssign):
                target = node.target
            else:
                continue
            if isinstance(target, ast.Name) and _ALIAS.fullmatch(target.id):
                yield target.id


@dataclass(frozen=True)
class House:
    """All modules below one folder."""

    modules: Mapping[str, Module]

    @classmethod
    def read(cls, root: Path = ROOT) -> House:
        """Read a folder; the project that ``sched init`` writes is data, and no part of it."""
        return cls(
            {
                module.name: module
                for path in sorted(root.rglob("*.py"))
                if "templates" not in path.parts
                for module in [_read(path, root.parent)]
            }
        )

    @cached_property
    def edges(self) -> set[tuple[str, str]]:
        """Pairs of modules of which the first imports the second directly."""
        found = set()
        for name, module in self.modules.items():
            for imported, taken in module.imports():
                deeper = f"{imported}.{taken}"
                target = deeper if deeper in self.modules else imported
                if target in self.modules and target != name:
                    found.add((name, target))
        return found

    @property
    def lines(self) -> int:
        """Lines of all modules."""
        return sum(module.lines for module in self.modules.values())

    def cycles(self) -> list[set[str]]:
        """Return groups of modules that import one another, directly or through others."""
        reach = {name: {name} for name in self.modules}
        grown = True
        while grown:
            before = sum(map(len, reach.values()))
            for one, other in self.edges:
                reach[one] |= reach[other]
            grown = sum(map(len, reach.values())) > before
        groups = {
            frozenset(other for other in reach[name] if name in reach[other]) for name in reach
        }
        return [set(group) for group in groups if len(group) > 1]

    def long_functions(self) -> list[str]:
        """Return functions above the limit."""
        return [
            f"{name}: {lines} lines"
            for module in self.modules.values()
            for name, lines in module.functions()
            if lines > LONGEST_FUNCTION
        ]

    def types_named_twice(self) -> list[str]:
        """Return names that several classes or type aliases have.

        Aliases in modules of commands are left out: they name what one command takes or prints.
        """
        names = Counter(name for module in self.modules.values() for name in module.classes())
        names.update(
            name
            for module in self.modules.values()
            if not module.name.startswith("engine.cli.")
            for name in module.aliases()
        )
        return sorted(name for name, times in names.items() if times > 1)

    def docstrings(self) -> Iterator[tuple[str, str]]:
        """Yield every docstring with the module it is in."""
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        for module in self.modules.values():
            for node in module.nodes:
                if isinstance(node, documented) and (text := ast.get_docstring(node)):
                    yield module.name, text

    def private_imports(self) -> list[str]:
        """Return imports of a private name from another module."""
        return [
            f"{module.name} imports {taken} from {imported}"
            for module in self.modules.values()
            for imported, taken in module.imports()
            if imported in self.modules and taken and taken.startswith("_") and taken[:2] != "__"
        ]


def _has_blocks(node: ast.AST) -> bool:
    """Return whether statements may stand in a node: no expression has any."""
    return isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case)


def _read(path: Path, above: Path) -> Module:
    parts = list(path.relative_to(above).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[: -1 if is_package else None]), is_package, path.read_text())


def main() -> None:
    """Print the measures."""
    house = House.read()
    modules, edges = len(house.modules), len(house.edges)
    lines = [
        f"modules                {modules:>7,}",
        f"lines                  {house.lines:>7,}",
        f"lines a module         {house.lines / modules:>7.0f}",
        f"import edges           {edges:>7,}",
        f"import edges a module  {edges / modules:>7.1f}",
        f"import cycles          {len(house.cycles()):>7,}",
        f"functions > {LONGEST_FUNCTION} lines   {len(house.long_functions()):>7,}",
        *("  cycle: " + ", ".join(sorted(cycle)) for cycle in house.cycles()),
        *("  long: " + function for function in house.long_functions()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
