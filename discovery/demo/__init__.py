"""The incident this project exists for, played on this machine with real brokers and a real Spark job."""
