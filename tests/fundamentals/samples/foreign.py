"""A workflow as another language's SDK sees it: payloads in bytes, and no help of the engine."""

from __future__ import annotations

from typing import Any

import temporalio.workflow
from temporalio.common import RawValue


@temporalio.workflow.defn(name="SendInvoices")
class SendInvoices:
    @temporalio.workflow.run
    async def run(self, given: RawValue) -> list[Any]:
        info = temporalio.workflow.info()
        memo = info.raw_memo["sched"]
        return [
            given.payload.metadata["encoding"].decode(),
            given.payload.data.decode(),
            memo.metadata["encoding"].decode(),
            memo.data.decode(),
            [f"{each.key.name} {each.value}" for each in info.typed_search_attributes],
        ]


@temporalio.workflow.defn(name="Bare")
class Bare:
    """Takes no argument, as a schedule without `input` gives none."""

    @temporalio.workflow.run
    async def run(self) -> str:
        return temporalio.workflow.info().workflow_id
