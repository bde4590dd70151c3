"""Watch: it looks for what should have happened and did not, and tells a receiver."""
