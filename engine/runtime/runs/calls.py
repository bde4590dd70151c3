"""The plugin's hook between a workflow and its calls to Temporal.

Separate, because the memo of a run and its steps hook themselves in, and neither knows the other.
"""

from __future__ import annotations

from temporalio.worker import (
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)


class RunInterceptor(Interceptor):
    """Interceptor of the outbound calls of workflows, by one ``_through`` for each run."""

    def _through(self, following: WorkflowOutboundInterceptor) -> WorkflowOutboundInterceptor:
        raise NotImplementedError

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """See the base class."""
        through = self._through

        class Inside(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(through(outbound))

        return Inside
