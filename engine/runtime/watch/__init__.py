"""Watch for what should have happened and did not; it sends alerts to a receiver."""
