SELECT EXISTS (
    SELECT 1 FROM fires
    WHERE namespace = $1 AND status IN ('failed', 'timed_out', 'rejected', 'terminated')
      AND followed_at IS NULL AND merged_at IS NULL AND kind <> 'handler' AND counted IS DISTINCT FROM 'unread') AS ended
