UPDATE bindings SET current = false WHERE namespace = $1 AND current AND namespace_id <> :id
