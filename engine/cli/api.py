"""Commands api and token, and the API inside of ``sched up``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.output import answers, instant_text
from engine.cli.target import (
    DEFAULT_DATA_DIR,
    DataDir,
    Reading,
    Session,
    Target,
    command,
    data_converter,
    moment,
    on_signal,
    one_of,
    port_number,
    project_here,
    target,
    write_private,
)
from engine.errors import (
    ExtraMissing,
    LedgerUnavailable,
    SettingsInvalid,
    SetupInvalid,
    extra_missing,
)
from engine.runtime.settings import Settings, database_schema
from engine.service import SCOPES, TokenRow
from engine.service.tokens import EVERY_KEY, new_secret

if TYPE_CHECKING:
    from types import ModuleType

    from temporalio.client import Client
    from temporalio.converter import DataConverter

    from engine.ledger import Ledger

commands = typer.Typer(rich_markup_mode=None)

DEFAULT_PORT: Final = 8230
_CONNECTIONS: Final = 5
_SHORTEST: Final = 32
"""Characters of the shortest token that the environment may name."""
_PATIENCE: Final = 1.0

ApiPort = Annotated[
    int,
    typer.Option(
        metavar="PORT",
        help="The API's port.",
        envvar="SCHED_API_PORT",
        parser=port_number,
    ),
]
ApiHost = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="The address to listen on; another one than this machine's own needs a token.",
        envvar="SCHED_API_HOST",
    ),
]


# --- sched api ---


@commands.command()
def api(
    host: ApiHost = "127.0.0.1",
    port: ApiPort = DEFAULT_PORT,
    data_dir: DataDir = DEFAULT_DATA_DIR,
) -> None:
    """Serve the REST API and a page for operators. Needs no worker.

    Once there is a token (`sched token create`, or SCHED_API_TOKEN), every request needs one.
    SIGTERM and Ctrl-C end it after the requests in flight.
    """
    where = target(data_dir)
    settings = Settings.from_environment()
    _configure_logging(settings)
    tokens = environment_tokens()
    served = _served()

    async def run() -> None:
        ledger = await _ledger(where)
        try:
            options = served.options_of(
                settings,
                tokens,
                host=host,
                namespace=where.namespace,
                ui_url=where.ui_url,
                project=project_here(where),
            )
            client = partial(_client, where)
            app = served.create_app(ledger, options, data_converter=data_converter, client=client)
            needs = await served.require_tokens(app, options, host=host)
            try:
                place = served.listening(host, port)
            except OSError as error:
                raise SetupInvalid(
                    f"no API at {host}:{port}: {error.strerror or error}",
                    hint="--port or SCHED_API_PORT names another port",
                ) from error
            async with served.serving(app, place):
                access = "with a token" if needs else "without a token, from this machine alone"
                root = _root(host, place.getsockname()[1])
                typer.echo(f"API at {root}/api/v1, page at {root}/ ({access})")
                await _stop_signal()
        finally:
            await ledger.close()

    asyncio.run(run())


def _configure_logging(settings: Settings) -> None:
    """Set up the log that the settings ask for; else only what is wrong is shown.

    That is errors of the server, of which no answer has more than a title, and refused requests.
    """
    if settings.log_format is not None:
        # It loads the Temporal SDK, which the API does without.
        from engine.telemetry.logs import configure_logging

        configure_logging(as_json=settings.log_format == "json")
    elif not logging.getLogger().isEnabledFor(logging.WARNING):
        logging.getLogger("sched").setLevel(logging.WARNING)


def _served() -> ModuleType:
    """Return the module of the API.

    Raises:
        ExtraMissing: the extra ``api`` is not installed.
    """
    if missing := extra_missing("api", "the API"):
        raise missing
    from engine.api import app  # an extra

    return app


async def _ledger(where: Target) -> Ledger:
    from engine.ledger import Ledger  # help needs no driver

    return await Ledger.connect(
        where.database_url,
        namespace=where.namespace,
        schema=database_schema(),
        connections=_CONNECTIONS,
    )


async def _client(where: Target) -> Client:
    """Connect to Temporal, which is asked how far the steps of a run are."""
    # To load its SDK takes a second, for which no request shall wait.
    temporal = await asyncio.to_thread(import_module, "engine.cli.temporal")
    client: Client = await temporal.connected(where, temporal.Setup.load())
    return client


def _root(host: str, port: int) -> str:
    named = f"[{host}]" if ":" in host else host
    return f"http://{named}:{port}"


async def _stop_signal() -> None:
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, asked.set)
    await asked.wait()


def environment_tokens() -> dict[str, str]:
    """Return the token of the environment, by the name of its variable.

    Raises:
        SettingsInvalid: it could be guessed.
    """
    secret = os.environ.get("SCHED_API_TOKEN")
    if not secret:
        return {}
    if len(secret) < _SHORTEST or not secret.isascii() or not secret.isprintable():
        raise SettingsInvalid(
            [f"SCHED_API_TOKEN is no token; write {_SHORTEST} or more random ASCII characters"]
        )
    return {"SCHED_API_TOKEN": secret}


# --- the API of sched up ---


ACCESS_FILE: Final = "api.json"


@dataclass(frozen=True)
class LocalAccess:
    """The token of ``sched up``, and the code of the address that signs in with it once.

    They are kept in the data folder: a browser stays signed in when `sched up` starts again, and an
    address that was printed and not used still opens. Without the file they are made anew.
    """

    token: str
    code: str

    @classmethod
    def of(cls, data_dir: Path) -> LocalAccess:
        """Return those of this folder, or new ones where others could have read them."""
        path = data_dir / ACCESS_FILE
        with suppress(OSError, ValueError, TypeError, KeyError):
            if not path.stat().st_mode & 0o077:
                kept = json.loads(path.read_text(encoding="utf-8"))
                found = cls(str(kept["token"]), str(kept["code"]))
                if len(found.token) >= _SHORTEST and found.code:
                    return found
        _, token = new_secret()
        return cls(token, token_urlsafe(16)).keep(data_dir)

    def keep(self, data_dir: Path) -> LocalAccess:
        """Write them into the folder."""
        write_private(data_dir / ACCESS_FILE, asdict(self))
        return self


@dataclass(frozen=True)
class LocalApi:
    """The API of ``sched up``, on loopback, with a token of the data folder.

    Attributes:
        port: its port; 0 takes a free one.
        data_dir: the folder that keeps the token.
    """

    port: int = DEFAULT_PORT
    data_dir: Path = DEFAULT_DATA_DIR

    @asynccontextmanager
    async def running(
        self, where: Target, converter: DataConverter | None, log: Callable[[str], None]
    ) -> AsyncIterator[None]:
        """Serve while the block lasts; a taken port, or a missing extra, is a warning."""
        settings, tokens = Settings.from_environment(), environment_tokens()
        try:
            served = _served()
            place = served.listening("127.0.0.1", self.port)
        except ExtraMissing as error:
            log(f"warning: no API: {error}")
            yield
            return
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            log(
                f"warning: no page and no API at 127.0.0.1:{self.port}: {why};"
                " --api-port or SCHED_API_PORT names another port"
            )
            yield
            return
        access = LocalAccess.of(self.data_dir)
        codes = {access.code: access.token}
        options = served.options_of(
            settings,
            {**tokens, "sched up": access.token},
            host="127.0.0.1",
            namespace=where.namespace,
            ui_url=where.ui_url,
            codes=codes,
            project=project_here(where),
        )
        root = _root("127.0.0.1", place.getsockname()[1])
        log(f"Page         {root}/enter/{access.code} (opens once; then sign in with the token)")
        log(f"API          {root}/api/v1 (token: {access.token})")
        serving = asyncio.create_task(_serve(served, where, options, place, converter))
        try:
            yield
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
            place.close()
            if not codes:  # the address was used
                replace(access, code=token_urlsafe(16)).keep(self.data_dir)


async def _serve(
    served: ModuleType,
    where: Target,
    options: Any,
    place: Any,
    converter: DataConverter | None,
) -> None:
    """Serve until cancelled, as soon as the ledger answers."""
    while True:
        ledger = await _if_there(where)
        if ledger is not None:
            break
        await asyncio.sleep(_PATIENCE)
    try:
        client = partial(_client, where)
        app = served.create_app(ledger, options, data_converter=converter, client=client)
        async with served.serving(app, place):
            await asyncio.Event().wait()
    finally:
        await ledger.close()


async def _if_there(where: Target) -> Ledger | None:
    try:
        return await _ledger(where)
    except LedgerUnavailable:
        return None


# --- sched token ---

_PURPOSE: Final = "Make, list and revoke tokens of the REST API."

group = typer.Typer(help=_PURPOSE, no_args_is_help=True)
commands.add_typer(group, name="token")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The token's name in the audit log.")]
AsScope = Annotated[
    str,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help=f"What it may do: {', '.join(SCOPES)}.",
        parser=one_of("scope", SCOPES),
    ),
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--keys",
        metavar="PATTERN",
        help="Only schedules with such a key, as billing.*; may be repeated.",
    ),
]
Projects = Annotated[
    list[str] | None,
    typer.Option(
        "--project",
        metavar="PATTERN",
        help="The projects in which it may declare schedules; with --keys by default this one.",
    ),
]
TaskQueues = Annotated[
    list[str] | None,
    typer.Option(
        "--task-queue",
        metavar="PATTERN",
        help="The task queues that these may name; with --keys by default sched.",
    ),
]
External = Annotated[
    list[str] | None,
    typer.Option(
        "--external",
        metavar="PATTERN",
        help="The Temporal types that these may start as external; with --keys by default none.",
    ),
]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="For how long, or until when: 90d, 2027-01-01."),
]


@command(group)
def create(
    session: Session,
    name: Name,
    *,
    scope: AsScope = "read",
    keys: Keys = None,
    projects: Projects = None,
    task_queues: TaskQueues = None,
    external: External = None,
    expires: Expires = None,
) -> None:
    """Make a token and print it, once; the ledger keeps only its digest."""
    until = moment(expires, "--expires", bare="ahead") if expires else None
    named = next(each for each in SCOPES if each == scope)
    if projects is None and keys:
        projects = [project_here(session.target)]
    made = session.ask(
        lambda opened: opened.create_token(
            name,
            scope=named,
            keys=keys or [EVERY_KEY],
            projects=projects,
            task_queues=task_queues,
            external=external,
            expires=until,
        )
    )
    end = f", until {instant_text(made.row.expires_at)}" if made.row.expires_at else ""
    session.print(
        answers.NEW_TOKEN(made.row, token=made.secret),
        [
            made.secret,
            f"{name} may {scope} {_shown_keys(made.row)}{end}; `sched token revoke` ends it",
        ],
    )


def _shown_keys(row: TokenRow) -> str:
    keys = "every schedule" if EVERY_KEY in row.keys else " ".join(row.keys)
    return f"{keys}{_shown_places(row)}"


def _shown_places(row: TokenRow) -> str:
    """Return where a token that may declare schedules may have them start runs."""
    if row.scope != "admin":
        return ""
    kinds = (("project", row.projects), ("task queue", row.task_queues), ("external", row.external))
    some = [(kind, names) for kind, names in kinds if EVERY_KEY not in names]
    return "".join(f", {kind} {' '.join(names) or 'none'}" for kind, names in some)


@command(group, "list", of=Reading)
def list_tokens(session: Session) -> None:
    """Show every token, with its scope, its keys and its last use."""
    rows: Sequence[TokenRow] = session.ask(lambda opened: opened.tokens())
    session.print_rows(
        rows,
        ("NAME", "SCOPE", "KEYS", "PLACES", "STATE", "EXPIRES", "LAST USED", "FROM", "CREATED BY"),
        [
            (
                row.name,
                row.scope,
                " ".join(row.keys),
                _shown_places(row).removeprefix(", "),
                row.state,
                instant_text(row.expires_at),
                instant_text(row.used_at),
                row.used_from,
                row.created_by,
            )
            for row in rows
        ],
        spare=("CREATED BY", "FROM"),
        optional=("PLACES",),
        none="there is no token; `sched token create NAME` makes one",
    )


@command(group)
def revoke(session: Session, name: Name) -> None:
    """Revoke a token; the next request that carries it is refused."""
    session.ask(lambda opened: opened.revoke_token(name))
    session.print(answers.REVOKED(name=name, revoked=True), f"{name} is revoked")
