"""A team that encrypts what it sends to Temporal: its codec, its setup and a saga."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from engine import Context, FatalError, step, undo, workflow
from engine.runtime import Setup

MARKER = "4111-1111-marker"
_ENCODING = b"binary/encrypted"


class Mirror(PayloadCodec):
    """Reversible, and no plain text; lets through what it did not encode."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(
                metadata={"encoding": _ENCODING},
                data=base64.b85encode(bytes(one ^ 90 for one in each.SerializeToString())),
            )
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload.FromString(bytes(one ^ 90 for one in base64.b85decode(each.data)))
            if each.metadata.get("encoding") == _ENCODING
            else each
            for each in payloads
        ]


def setup() -> Setup:
    return Setup(payload_codec=Mirror())


@step(name="sealed-charge")
async def charge(card: str) -> str:
    return card


@undo(name="sealed-refund")
async def refund(card: str) -> None:
    """Undo."""


@undo(name="sealed-refuse")
async def refuse(card: str) -> None:
    raise FatalError("the bank keeps it")


@workflow(name="sealed-open", compensate_on_terminate=True)
class SealedOpen:
    """Charges, and waits until it is terminated."""

    async def run(self, ctx: Context, card: str) -> None:
        await ctx.step(charge, card, compensate=refund)
        await ctx.wait_for("never")


@workflow(name="sealed-dead")
class SealedDead:
    """Is told of a fire that ended badly."""

    async def run(self, ctx: Context, dead: dict[str, Any]) -> str:
        return str(dead["input"])


@workflow(name="sealed-echo")
class SealedEcho:
    """Returns its input."""

    async def run(self, ctx: Context, card: str) -> str:
        return card


@workflow(name="sealed-left")
class SealedLeft:
    """Fails, and cannot be undone: its failure lists the input of the step."""

    async def run(self, ctx: Context, card: str) -> None:
        await ctx.step(charge, card, compensate=refuse)
        raise FatalError("out of stock")
