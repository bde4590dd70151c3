"""REST API: the service over HTTP, for applications and operators without Python.

Each route is one call of ``engine.service``. What every request has in common (who may, how much,
how often, what a repetition means) is in ``access`` and ``requests``; docs/api.md shows it from
outside. Needs the extra ``api``.
"""
