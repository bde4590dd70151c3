SELECT lane, queue, holder, count(*) AS slots FROM queue_slots
WHERE namespace = $1 AND lease_until > (SELECT clock_timestamp())
GROUP BY lane, queue, holder ORDER BY lane, holder
