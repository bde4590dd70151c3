"""Views: what every answer is as JSON, for the commands, the API and its streams.

A view is written once, from the names of a record of the service; docs/json.md has all of them.
"""

from engine.json_view import (
    as_json as as_json,
    in_camel_case as in_camel_case,
    json_schema as json_schema,
    json_text as json_text,
)
from engine.views import answers as answers
