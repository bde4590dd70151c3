"""Writes within a transaction of the application: a new schedule, or a start.

The statements are those of any other write. They go to the server as one text without parameters
and without results, so that no codec of the connection takes part; a savepoint around them keeps
the transaction alive when one is refused; and the search path is theirs only until the last of
them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg

from engine.errors import LedgerError
from engine.ledger.postgres.connections import query, search_path_of, translated

Statement = tuple[str, Sequence[object]]
"""The name of a query, and its arguments after the namespace."""

_PARAMETER: Final = re.compile(r"\$([0-9]+)")
_NO_LEDGER: Final = "SE001"
_NO_TRIGGERS: Final = "SE002"
_NOTHING: Final = "SE003"
"""Codes that the text below raises; SQL reserves no class SE."""

_WITHIN: Final = """
DO {quote}
DECLARE
    its_path pg_catalog.text := pg_catalog.current_setting('search_path');
    written pg_catalog.int8;
BEGIN
    -- Temporary tables of the session would come before ours.
    PERFORM pg_catalog.set_config('search_path', {path}, true);
    IF NOT EXISTS (SELECT FROM ledger WHERE ledger_id = {ledger_id}) THEN
        RAISE EXCEPTION 'another ledger' USING ERRCODE = '{no_ledger}';
    END IF;
    IF pg_catalog.current_setting('session_replication_role') = 'replica' THEN
        RAISE EXCEPTION 'no triggers' USING ERRCODE = '{no_triggers}';
    END IF;
    {statements}
    PERFORM pg_catalog.set_config('search_path', its_path, true);
END {quote}
"""
_EACH: Final = """
    EXECUTE {statement};
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written = 0 THEN
        RAISE EXCEPTION 'nothing written' USING ERRCODE = '{nothing}';
    END IF;
"""


async def write_within(
    connection: Any,
    statements: Iterable[Statement],
    *,
    namespace: str,
    schema: str,
    ledger_id: str,
) -> bool:
    """Write rows in the open transaction of an application; return False if one was there before.

    After a refusal or an error the transaction goes on as it was before.

    Args:
        connection: an asyncpg connection with an open transaction on the ledger's database.
        statements: each writes a row.
        namespace: that of the ledger.
        schema: that of the ledger.
        ledger_id: the ledger that the connection has to reach.

    Raises:
        UniqueViolationError: another transaction has committed one of the rows.
        LedgerError: the connection has no open transaction, or does not reach the ledger.
    """
    if not connection.is_in_transaction():
        raise LedgerError(
            "the connection has no open transaction",
            hint="call this within `async with connection.transaction():`",
        )
    text = _text(statements, namespace, schema, ledger_id)
    savepoint = f"sched_{secrets.token_hex(4)}"
    with translated():
        await connection.execute(f"SAVEPOINT {savepoint}")
        try:
            await connection.execute(text)
        except BaseException as error:
            # Of a connection that was lost nothing is left to take back.
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await connection.execute(f"ROLLBACK TO {savepoint}; RELEASE {savepoint}")
            if getattr(error, "sqlstate", None) == _NOTHING:
                return False
            if (refusal := _refusal(error, schema)) is not None:
                raise refusal from error
            raise
        await connection.execute(f"RELEASE {savepoint}")
    return True


def _text(statements: Iterable[Statement], namespace: str, schema: str, ledger_id: str) -> str:
    each = [
        _EACH.format(
            statement=_quoted(_filled(query(name), (namespace, *arguments))), nothing=_NOTHING
        )
        for name, arguments in statements
    ]
    return _WITHIN.format(
        quote=f"$s{secrets.token_hex(8)}$",
        path=_literal(search_path_of(schema)),
        ledger_id=_literal(ledger_id),
        statements="".join(each),
        no_ledger=_NO_LEDGER,
        no_triggers=_NO_TRIGGERS,
    )


def _refusal(error: BaseException, schema: str) -> LedgerError | None:
    """Return the error of ours for one of PostgreSQL; None if it means nothing more."""
    code = getattr(error, "sqlstate", None)
    if code in {_NO_LEDGER, asyncpg.UndefinedTableError.sqlstate}:
        return LedgerError(
            f"the connection does not reach the ledger in schema {schema}",
            hint="give a connection to the database of SCHED_DATABASE_URL",
        )
    if code == _NO_TRIGGERS:
        return LedgerError(
            "the triggers of the ledger are off on this connection",
            hint="leave session_replication_role at origin",
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
