SELECT clock_timestamp() AS now FROM ledger WHERE $1::text IS NOT NULL
