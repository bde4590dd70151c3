"""A codec of one team's clients, as others see it: not at all."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec


class Sealed(PayloadCodec):
    """Writes payloads in an encoding that nobody else knows."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        metadata = {"encoding": b"binary/sealed"}
        return [Payload(metadata=metadata, data=one.SerializeToString()) for one in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(one.data) for one in payloads]
