"""Pure decisions: no thread, socket, file, log, real clock or client library in here."""
