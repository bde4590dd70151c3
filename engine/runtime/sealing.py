"""Sealing of inputs: what a team's codec encodes for Temporal, it encodes for the ledger too.

Every input goes through here before it is written. A project whose inputs were once written with a
codec is sealed, and takes no input without it from then on. Digests of inputs are made before they
are encoded, with a key of the project that the ledger keeps sealed: equal inputs are known, and
the ledger's readers cannot try guesses.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from engine.errors import InputsSealed
from engine.runtime.events import logger
from engine.schedules import Schedule, ScheduleFile, Sealed, definition_digest

if TYPE_CHECKING:
    from temporalio.api.common.v1 import Payload
    from temporalio.converter import DataConverter

    from engine.ledger import Ledger

_AT_ONCE: Final = 200
"""Inputs in one call of the codec."""
_PATIENCE: Final = 10.0
"""Seconds of one call of the codec, which may ask a server for its keys."""
CODEC_HINT: Final = "name the team's codec: SCHED_SETUP=module:function"


class Sealing:
    """Sealing of the inputs of one ledger, by the codec of a client.

    Args:
        ledger: where inputs are written.
        converter: the client's data converter, or a function that returns it when it is needed.
            Without one, or without a codec, inputs are written as they are.
        by: the actor that the ledger records.
        dry_run: whether nothing is written: a project that is not sealed yet stays so.
    """

    def __init__(
        self,
        ledger: Ledger,
        converter: DataConverter | Callable[[], DataConverter | None] | None = None,
        *,
        by: str = "",
        dry_run: bool = False,
    ) -> None:
        self._ledger, self._given, self._by = ledger, converter, by
        self._dry_run = dry_run
        self._keys: dict[str, bytes] = {}

    @cached_property
    def _converter(self) -> DataConverter | None:
        """The converter; None if it has no codec."""
        found = self._given() if callable(self._given) else self._given
        return found if found is not None and found.payload_codec is not None else None

    @property
    def has_codec(self) -> bool:
        """Whether inputs can be sealed and opened here."""
        return self._converter is not None

    def for_dry_run(self) -> Sealing:
        """Return one that seals the same, and writes nothing to the ledger."""
        return Sealing(self._ledger, self._converter, dry_run=True)

    async def seal(self, project: str, values: Sequence[Any]) -> list[Any]:
        """Return inputs as the ledger stores them: sealed if there is a codec, else as they are.

        Raises:
            InputsSealed: the project is sealed, and there is no codec here; or the codec fails.
        """
        key = await self._key(project) if values else None
        if key is None or self._converter is None:
            return list(values)
        sealed: list[Any] = []
        for first in range(0, len(values), _AT_ONCE):
            some = values[first : first + _AT_ONCE]
            payloads = await _attempt(self._converter.encode, some)
            sealed += [
                Sealed(_text(each), _digest(key, value))
                for each, value in zip(payloads, some, strict=True)
            ]
        return sealed

    async def sealed(self, project: str, schedules: Iterable[Schedule]) -> list[Schedule]:
        """Return definitions as the ledger stores them; see ``seal``."""
        every = list(schedules)
        inputs = iter(await self.seal(project, [each.input for each in every if _is_plain(each)]))
        return [_with_input(each, next(inputs)) if _is_plain(each) else each for each in every]

    async def file(self, file: ScheduleFile) -> ScheduleFile:
        """Return a file as the ledger stores it, with the digest of ``file_digest``."""
        digest = await self.file_digest(file.project, file.digest)
        schedules = await self.sealed(file.project, file.schedules)
        return replace(file, schedules=tuple(schedules), digest=digest)

    async def file_digest(self, project: str, digest: str) -> str:
        """Return the digest of a file of the project as the ledger stores it.

        Raises:
            InputsSealed: the project is sealed, and there is no codec here.
        """
        key = await self._key(project)
        return digest if key is None else _digest(key, digest)

    async def open(self, value: Any) -> Any:
        """Return a sealed input in plain; any other value as it is.

        Raises:
            InputsSealed: there is no codec here, or it fails.
        """
        return await opened(value, self._converter) if isinstance(value, Sealed) else value

    async def shown(self, value: Any) -> Any:
        """Return an input for people: in plain if it can be read here, else as it is."""
        if not isinstance(value, Sealed) or not self.has_codec:
            return value
        try:
            return await self.open(value)
        except InputsSealed as error:
            logger.warning("%s", error)
            return value

    async def shown_in(self, schedule: Schedule) -> Schedule:
        """Return a definition for people; see ``shown``."""
        if not isinstance(schedule.input, Sealed):
            return schedule
        return schedule.model_copy(update={"input": await self.shown(schedule.input)})

    def is_same(self, project: str, before: Any, now: Any) -> bool:
        """Return whether an input that was just sealed here is the one before it."""
        key = self._keys.get(project)
        if key is not None and isinstance(now, Sealed) and not isinstance(before, Sealed):
            return _digest(key, before) == now.digest
        return bool(before == now)

    async def _key(self, project: str) -> bytes | None:
        """Return the key of the project's digests, and seal the project if there is a codec.

        None if inputs are stored as they are.
        """
        if project in self._keys:
            return self._keys[project]
        async with self._ledger.transaction() as transaction:
            text = await transaction.seal(project)
        if text is None and self._converter is not None:
            text = await self._first(project, self._converter)
        if text is None:
            return None
        if self._converter is None:
            raise InputsSealed(f"the inputs of project {project} are sealed", hint=CODEC_HINT)
        (key,) = await _attempt(self._converter.decode, [_payload(text)])
        self._keys[project] = bytes.fromhex(key)
        return self._keys[project]

    async def _first(self, project: str, converter: DataConverter) -> str:
        """Seal the project; return its key as it is stored."""
        (payload,) = await _attempt(converter.encode, [secrets.token_hex(32)])
        text = _text(payload)
        if self._dry_run:
            return text
        async with self._ledger.transaction() as transaction:
            return await transaction.seal_project(project, text, by=self._by)


def _is_plain(schedule: Schedule) -> bool:
    return schedule.has_input and not isinstance(schedule.input, Sealed)


def _with_input(schedule: Schedule, given: Any) -> Schedule:
    """Return a definition with this input, if that is sealed."""
    is_sealed = isinstance(given, Sealed)
    return schedule.model_copy(update={"input": given}) if is_sealed else schedule


async def opened(sealed: Sealed, converter: DataConverter | None) -> Any:
    """Return a sealed input in plain.

    Raises:
        InputsSealed: the converter is missing, or its codec fails.
    """
    if converter is None:
        raise InputsSealed("the input is sealed", hint=CODEC_HINT)
    (value,) = await _attempt(converter.decode, [payload_of(sealed)])
    return value


def payload_of(sealed: Sealed) -> Payload:
    """Return Temporal's payload of a sealed input, as the codec wrote it."""
    return _payload(sealed.payload)


def _text(payload: Payload) -> str:
    return base64.b64encode(payload.SerializeToString()).decode()


def _payload(text: str) -> Payload:
    from temporalio.api.common.v1 import Payload  # noqa: PLC0415 - most commands need no SDK

    return Payload.FromString(base64.b64decode(text))


def _digest(key: bytes, value: Any) -> str:
    """Return the keyed digest of a JSON value, in hex; equal values have equal ones."""
    plain = definition_digest({"input": value})
    return hmac.new(key, plain.encode(), hashlib.sha256).hexdigest()


async def _attempt(convert: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> list[Any]:
    """Return what the converter makes of these values.

    Raises:
        InputsSealed: it fails, or does not answer in time; a codec may raise anything.
    """
    try:
        async with asyncio.timeout(_PATIENCE):
            return cast("list[Any]", await convert(values))
    except Exception as error:
        text = f"the codec failed: {type(error).__name__}: {error}"
        raise InputsSealed(text, hint="mend it, or give it its keys") from error
