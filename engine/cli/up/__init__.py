"""Commands up and worker."""
