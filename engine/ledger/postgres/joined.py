"""Creation of a schedule within a transaction of the application.

The statements are those of any other creation. They go to the server as one text without
parameters and without results, so that no codec of the connection takes part; a savepoint around
them keeps the transaction alive when one is refused; and the search path is theirs only until the
last of them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg

from engine.errors import EngineError, LedgerError
from engine.ledger.postgres.connections import query, search_path_of, translated
from engine.ledger.postgres.transaction import creation, in_use
from engine.ledger.records import Action, NewDefinition

_PARAMETER: Final = re.compile(r"\$([0-9]+)")
_NO_LEDGER: Final = "SE001"
_NO_POSITION: Final = "SE002"
"""Codes that the text below raises; SQL reserves no class SE."""

_WITHIN: Final = """
DO {quote}
DECLARE
    its_path pg_catalog.text := pg_catalog.current_setting('search_path');
BEGIN
    -- Temporary tables of the session would come before ours.
    PERFORM pg_catalog.set_config('search_path', {path}, true);
    IF NOT EXISTS (SELECT FROM ledger WHERE ledger_id = {ledger_id}) THEN
        RAISE EXCEPTION 'another ledger' USING ERRCODE = '{no_ledger}';
    END IF;
    {statements};
    -- A trigger writes it, unless the session has switched triggers off.
    IF NOT EXISTS (SELECT FROM positions WHERE namespace = {namespace} AND key = {key}) THEN
        RAISE EXCEPTION 'no position' USING ERRCODE = '{no_position}';
    END IF;
    PERFORM pg_catalog.set_config('search_path', its_path, true);
END {quote}
"""


async def create_within(
    connection: Any,
    new: NewDefinition,
    action: Action,
    *,
    by: str,
    namespace: str,
    schema: str,
    ledger_id: str,
) -> None:
    """Write the first definition of a key in the open transaction of an application.

    Args:
        connection: an asyncpg connection with an open transaction on the ledger's database.
        new: the definition.
        action: its row for the audit log.
        by: the actor.
        namespace: that of the ledger.
        schema: that of the ledger.
        ledger_id: the ledger that the connection has to reach.

    Raises:
        KeyInUse, RequestInUse: another transaction has committed one of them.
        LedgerError: the connection has no open transaction, or does not reach the ledger.
    """
    if not connection.is_in_transaction():
        raise LedgerError(
            "the connection has no open transaction",
            cure="call this within `async with connection.transaction():`",
        )
    text = _text(new, action, by, namespace, schema, ledger_id)
    savepoint = f"sched_{secrets.token_hex(4)}"
    with translated():
        await connection.execute(f"SAVEPOINT {savepoint}")
        try:
            await connection.execute(text)
        except BaseException as error:
            # Of a connection that was lost nothing is left to take back.
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await connection.execute(f"ROLLBACK TO {savepoint}; RELEASE {savepoint}")
            if (refusal := _refusal(error, new, schema)) is not None:
                raise refusal from error
            raise
        await connection.execute(f"RELEASE {savepoint}")


def _text(
    new: NewDefinition, action: Action, by: str, namespace: str, schema: str, ledger_id: str
) -> str:
    statements = [
        _filled(query(name), (namespace, *arguments))
        for name, arguments in creation(new, action, by=by)
    ]
    return _WITHIN.format(
        quote=f"$s{secrets.token_hex(8)}$",
        path=_literal(search_path_of(schema)),
        ledger_id=_literal(ledger_id),
        statements=";\n".join(statements),
        namespace=_literal(namespace),
        key=_literal(new.schedule.key),
        no_ledger=_NO_LEDGER,
        no_position=_NO_POSITION,
    )


def _refusal(error: BaseException, new: NewDefinition, schema: str) -> EngineError | None:
    """Return the error of ours for one of PostgreSQL; None if it means nothing more."""
    if isinstance(error, asyncpg.UniqueViolationError):
        return in_use(error, new)
    code = getattr(error, "sqlstate", None)
    if code in {_NO_LEDGER, asyncpg.UndefinedTableError.sqlstate}:
        return LedgerError(
            f"the connection does not reach the ledger in schema {schema}",
            cure="give a connection to the database of SCHED_DATABASE_URL",
        )
    if code == _NO_POSITION:
        return LedgerError(
            "the triggers of the ledger are off on this connection",
            cure="leave session_replication_role at origin",
        )
    return None


def _filled(text: str, arguments: Sequence[object]) -> str:
    """Return a statement with its arguments as literals."""
    bare = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return _PARAMETER.sub(lambda found: _literal(arguments[int(found[1]) - 1]), bare)


def _literal(value: object) -> str:  # noqa: PLR0911 - a table of one line each
    """Return a value as SQL that means the same under every setting of a session."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case datetime():
            # The local time of a cursor has no offset.
            kind = "timestamptz" if value.tzinfo else "timestamp"
            return f"{_quoted(value.isoformat())}::{kind}"
        case timedelta():
            return f"{_quoted(f'{value // timedelta(microseconds=1)} microseconds')}::interval"
        case str():
            return _quoted(value)
        case list() | tuple():
            return f"ARRAY[{', '.join(map(_literal, value))}]"
    raise TypeError(f"no literal of {type(value).__name__}")


def _quoted(text: str) -> str:
    """Return a text in dollar quotes, which no setting of backslashes changes."""
    quote = f"$q{secrets.token_hex(8)}$"
    return f"{quote}{text}{quote}"
