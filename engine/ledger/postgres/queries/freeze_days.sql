UPDATE days SET final = true WHERE namespace = $1 AND key = $2 AND day = ANY ($3::date[])
