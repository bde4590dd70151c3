"""Timing of schedules: specs, cron, time zones and calendars. Pure."""
