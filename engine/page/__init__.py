"""Page for operators: its templates, charts and words; ``engine.api`` serves it.

``text`` needs nothing, so that commands use it too. The rest needs Jinja2, which the extra ``api``
brings.
"""
