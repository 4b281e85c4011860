"""Seeds of faults, and an hour of them, against the service alone: no JVM."""
