"""What everything stands on: devices, compiled programs, random keys, progress, errors."""
