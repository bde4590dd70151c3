SELECT EXISTS (
    SELECT FROM superseded_files WHERE namespace = $1 AND project = $2 AND file_digest = $3) AS found
