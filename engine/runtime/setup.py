"""Setup of a team's own: options of the Temporal client and of the worker for the stock commands.

``SCHED_SETUP=module:function`` names a function that returns them, so that ``sched worker`` and the
commands that read Temporal use the team's codec, interceptors and credentials.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self

from temporalio.client import Interceptor as ClientInterceptor, Plugin
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.service import TLSConfig
from temporalio.worker import Interceptor, WorkerDeploymentConfig, WorkerTuner

from engine.errors import SetupInvalid, did_you_mean

_EXAMPLE: Final = "write module:function, as SCHED_SETUP=ours.temporal:setup"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Options of the Temporal client and of the worker; None leaves the SDK's default.

    Attributes:
        data_converter: converts inputs and results. The plugin lets the default one read models.
        payload_codec: encodes what the converter wrote, for example encrypts it. A codec should
            return what it did not encode as it is.
        interceptors: of the client, of the worker, or of both.
        plugins: further plugins of the client, which its workers inherit.
        tls: the TLS options of the connection; True for the default ones.
        api_key: the API key of the connection.
        rpc_metadata: headers of every call.
        max_concurrent_workflow_tasks: workflow tasks that the worker executes at once.
        max_concurrent_activities: steps that the worker executes at once.
        max_concurrent_local_activities: local activities that it executes at once.
        max_cached_workflows: runs that the worker keeps in memory.
        max_activities_per_second: steps that this worker begins per second.
        max_task_queue_activities_per_second: steps that the task queue begins per second.
        tuner: sets the concurrency in place of the ``max_concurrent_*`` options.
        deployment_config: the worker's deployment version.

    Raises:
        SetupInvalid: an option does not exist, or two exclude each other.
    """

    data_converter: DataConverter | None = None
    payload_codec: PayloadCodec | None = None
    interceptors: Sequence[ClientInterceptor | Interceptor] = ()
    plugins: Sequence[Plugin] = ()
    tls: TLSConfig | bool | None = None
    api_key: str | None = None
    rpc_metadata: Mapping[str, str] | None = None
    max_concurrent_workflow_tasks: int | None = None
    max_concurrent_activities: int | None = None
    max_concurrent_local_activities: int | None = None
    max_cached_workflows: int | None = None
    max_activities_per_second: float | None = None
    max_task_queue_activities_per_second: float | None = None
    tuner: WorkerTuner | None = None
    deployment_config: WorkerDeploymentConfig | None = None

    def __new__(cls, **options: Any) -> Self:
        """Refuse unknown options with the one that they resemble."""
        known = [each.name for each in fields(cls)]
        for name in options:
            if name not in known:
                hint = did_you_mean(name, known, f"there are {', '.join(known)}")
                raise SetupInvalid(f"Setup has no option {name!r}", hint=hint)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse two codecs."""
        converter = self.data_converter
        if self.payload_codec and converter and converter.payload_codec:
            raise SetupInvalid(
                "Setup has two codecs, payload_codec and that of data_converter",
                hint="give one of them",
            )

    @classmethod
    def load(cls, given: str | None = None) -> Setup:
        """Return what the function returns that is given, or that ``SCHED_SETUP`` names.

        Without either, the setup has no options. The working directory is added to ``sys.path``.

        Raises:
            SetupInvalid: the function cannot be called, or returns no ``Setup``.
        """
        name = given or os.environ.get("SCHED_SETUP")
        return _made_by(name) if name else cls()

    @property
    def converter(self) -> DataConverter | None:
        """The data converter, with the codec; None leaves the SDK's."""
        if self.payload_codec is None:
            return self.data_converter
        given = self.data_converter or DataConverter.default
        return replace(given, payload_codec=self.payload_codec)

    def client_options(self, *plugins: Plugin) -> dict[str, Any]:
        """Return the arguments for ``Client.connect``, with these plugins after our own."""
        interceptors = [each for each in self.interceptors if isinstance(each, ClientInterceptor)]
        given = {
            "data_converter": self.converter,
            "interceptors": interceptors or None,
            "plugins": [*self.plugins, *plugins] or None,
            **{name: getattr(self, name) for name in ("tls", "api_key", "rpc_metadata")},
        }
        return {name: value for name, value in given.items() if value is not None}

    def worker_options(self) -> dict[str, Any]:
        """Return the arguments for ``Worker``. It inherits the interceptors of its client."""
        own = [each for each in self.interceptors if not isinstance(each, ClientInterceptor)]
        given = {name: getattr(self, name) for name in _OF_WORKERS}
        options = {name: value for name, value in given.items() if value is not None}
        return {**options, "interceptors": own} if own else options


_OF_WORKERS: Final = tuple(
    each.name
    for each in fields(Setup)
    if each.name.startswith("max_") or each.name in {"tuner", "deployment_config"}
)


def _made_by(name: str) -> Setup:
    try:
        made = _function(name)()
    except SetupInvalid:
        raise
    except Exception as error:
        raise SetupInvalid(
            f"the setup {name} failed: {type(error).__name__}: {error}", hint="mend the function"
        ) from error
    if not isinstance(made, Setup):
        raise SetupInvalid(
            f"the setup {name} returned {type(made).__name__}",
            hint="return an engine.runtime.Setup",
        )
    return made


def _function(name: str) -> Callable[[], object]:
    module_name, colon, function_name = name.partition(":")
    if not colon or not all(part.isidentifier() for part in module_name.split(".")):
        raise SetupInvalid(f"the setup is {name!r}", hint=_EXAMPLE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and module_name.startswith(
            error.name or "?"
        )
        if missing:
            text = f"the setup {name}: there is no module {module_name} here"
            raise SetupInvalid(text, hint="run in the folder that holds it") from error
        raise SetupInvalid(
            f"the setup {name}: importing {module_name} failed: {type(error).__name__}: {error}",
            hint="mend the module",
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        hint = did_you_mean(function_name, vars(module), _EXAMPLE)
        text = f"the setup {name}: {module_name} has no function {function_name!r}"
        raise SetupInvalid(text, hint=hint)
    checked: Callable[[], object] = function
    return checked
