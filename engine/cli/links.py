"""Addresses of pages in Temporal's Web UI. An id of ours has colons, so all is encoded."""

from __future__ import annotations

from urllib.parse import quote


def runs_link(ui_url: str, namespace: str, key: str) -> str:
    """Return the page that lists every run of a schedule."""
    query = f'WorkflowId STARTS_WITH "sched:{key}:"'
    return f"{ui_url}/namespaces/{_quoted(namespace)}/workflows?query={_quoted(query)}"


def run_link(ui_url: str, namespace: str, workflow_id: str, run_id: str) -> str:
    """Return the page of one run."""
    place = f"{ui_url}/namespaces/{_quoted(namespace)}/workflows"
    return f"{place}/{_quoted(workflow_id)}/{_quoted(run_id)}/history"


def _quoted(text: str) -> str:
    return quote(text, safe="")
