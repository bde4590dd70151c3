"""Where the plugin stands between a workflow and what it asks Temporal for."""

from __future__ import annotations

from collections.abc import Callable

from temporalio.worker import WorkflowInboundInterceptor, WorkflowOutboundInterceptor


def passing(
    through: Callable[[WorkflowOutboundInterceptor], WorkflowOutboundInterceptor],
) -> type[WorkflowInboundInterceptor]:
    """Return what lets the calls of every workflow pass through an interceptor made by ``through``.

    The SDK asks for a class, of which it makes one for each run.
    """

    class Inside(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            super().init(through(outbound))

    return Inside
