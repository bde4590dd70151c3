SELECT definition FROM definitions WHERE namespace = $1 AND key = $2 AND version = $3
