"""Code watch of ``sched up``: import the user's code again when one of its files changes."""

from __future__ import annotations

import asyncio
import importlib
import linecache
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from engine.errors import EngineError, WorkflowInvalid
from engine.flow import forget_modules
from engine.runtime.code.discovery import UserCode, import_user_code, imports_from_environment
from engine.runtime.code.workflow_check import unsound

_EVERY = 0.5
"""Seconds between two looks at the files. A look costs a millisecond for a hundred files, and needs
no notifications of the file system, which containers and networks often lack."""
_NAMED = 3
_NOT_THEIRS = frozenset({"engine", "__main__", "__mp_main__"})

Stamps = dict[Path, tuple[int, int]]
"""Time of change in ns and size of each file."""


def require_sound(code: UserCode) -> None:
    """Import code once more, as the sandbox of its runs does.

    Raises:
        WorkflowInvalid: it cannot be imported there.
    """
    if problems := asyncio.run(unsound(code.workflows, code.activities)):
        raise WorkflowInvalid(problems)


class CodeWatch:
    """Watcher of the files that the worker's code was imported from.

    Code that cannot be imported changes nothing: the modules of before are put back.

    Args:
        code: the code that the worker serves.
        imports: the packages that were named for it; empty for the default ones.
        log: prints a sentence, in red if it is one of a fault.
        every: seconds between two looks.

    Attributes:
        code: the newest code that could be imported.
        renewed: set when ``code`` is new; its reader clears it.
    """

    def __init__(
        self,
        code: UserCode,
        imports: Sequence[str] = (),
        *,
        log: Callable[[str, str], None],
        every: float = _EVERY,
    ) -> None:
        self.code, self.renewed = code, asyncio.Event()
        self._imports, self._log, self._every = tuple(imports), log, every
        # Bytecode is compared by whole seconds, in which a file may change twice.
        sys.dont_write_bytecode = True
        self._seen = self.look()

    async def run(self) -> None:
        """Watch until cancelled."""
        before = self._seen
        while True:
            await asyncio.sleep(self._every)
            now = self.look()
            if now != self._seen and now == before:  # it rests: half of a file may be valid
                paths = {**self._seen, **now}
                await self.renew([path for path in paths if self._seen.get(path) != now.get(path)])
                self._seen = now | {each: at for each, at in self.look().items() if each not in now}
            before = now

    def look(self) -> Stamps:
        """Return the files of the code, and those beside them in its packages."""
        files = {Path(str(module.__file__)) for module in self._modules().values()}
        for package in [path.parent for path in files if path.name == "__init__.py"]:
            files |= {*package.rglob("*.py")}
        found = {}
        for path in files:
            with suppress(OSError):
                stat = path.stat()
                found[path] = (stat.st_mtime_ns, stat.st_size)
        return found

    async def renew(self, changed: Sequence[Path]) -> None:
        """Import the code again, or put the modules of before back and log why."""
        names = ", ".join(sorted({path.name for path in changed})[:_NAMED])
        before, restore = self._modules(), forget_modules([*self._modules()])
        self._forget()
        try:
            code = import_user_code(self._imports or imports_from_environment())
            # In a thread: the sandbox imports them once more, while runs and steps go on.
            await asyncio.to_thread(require_sound, code)
        except EngineError as error:
            self._forget()
            sys.modules.update(before)
            restore()
            text = f"{names} changed and cannot be loaded; the worker goes on with the code before"
            self._log(f"{text}: {error}", "red")
            return
        self.code = code
        self._log(f"{names} changed: the worker drains, and starts again with it", "")
        self.renewed.set()

    def _forget(self) -> None:
        """Have the next import read the files."""
        for name in self._modules():
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.checkcache()

    def _modules(self) -> dict[str, ModuleType]:
        """Return the modules of the working directory, and of the packages that were named."""
        named = {name.partition(".")[0] for name in self._imports or imports_from_environment()}
        here = Path.cwd()
        return {
            name: module
            for name, module in list(sys.modules.items())
            if (top := name.partition(".")[0]) not in _NOT_THEIRS
            and (file := getattr(module, "__file__", None))
            and str(file).endswith(".py")
            and "site-packages" not in Path(file).parts
            and (top in named or Path(file).is_relative_to(here))
        }
