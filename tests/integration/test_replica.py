"""One replica on real servers, from the file to the run."""

from temporalio.worker import Worker

from engine.ledger import PostgresLedger
from engine.runtime import SchedulePlugin, Settings
from engine.schedules import load_schedules
from tests.sample_workflows import Noop
from tests.waiting import eventually


FILE = """
schedules:
  - {key: quick, workflow: noop, everyMs: 1000, input: {to: you}}
  - {key: hourly, workflow: noop, everyMs: 3600000, timezone: America/Sao_Paulo}
""".replace(", timezone: America/Sao_Paulo", "")


async def test_windows_become_runs_and_their_closes_reach_the_ledger(client, database_url):
    file = load_schedules(FILE)
    plugin = SchedulePlugin(file, database_url=database_url, settings=Settings(), on_event=print)
    async with Worker(client, task_queue="sched", workflows=[Noop], plugins=[plugin]):
        ledger = await PostgresLedger.connect(database_url, namespace=client.namespace)

        async def closed():
            fires = await ledger.fires(key="quick", status="completed")
            return len(fires) >= 3

        await eventually(closed, timeout=20)
        for fire in await ledger.fires():
            print(fire)
        await ledger.close()
