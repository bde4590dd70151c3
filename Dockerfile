# One image for everything that `sched` does without servers of its own: `worker` by default,
# `migrate`, `apply`, `list` ... as the command. It runs with a read-only root.

FROM python:3.13-slim-trixie AS build
WORKDIR /src
RUN python -m venv /opt/sched
# What changes rarely comes first. The core only: no servers, no tools of developers.
COPY requirements-core.lock requirements-build.lock ./
RUN /opt/sched/bin/python -m pip install --no-cache-dir --require-hashes --requirement requirements-core.lock \
 && python -m pip install --no-cache-dir --require-hashes --requirement requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY docs ./docs
COPY engine ./engine
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/sched/bin/python -m pip install --no-cache-dir --no-index --no-deps dist/*.whl

FROM python:3.13-slim-trixie
# A new volume takes its owner from the folder that it covers.
RUN useradd --uid 1000 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sched \
 && install --directory --owner=1000 --group=1000 /var/lib/sched
ENV PATH=/opt/sched/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
COPY --from=build /opt/sched /opt/sched
WORKDIR /app
# The health check of a service that runs a worker. None is declared here: jobs and `sched watch`,
# which the same image runs, serve no health.
COPY deploy/health.py ./
COPY activities ./activities
COPY workflows ./workflows
COPY schedules.yaml ./
USER 1000:1000
# A schedule file with a mistake in it makes no image.
RUN ["sched", "check"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["sched"]
CMD ["worker"]
