"""Messages that pass from one account into another: stream imports, service imports, replies."""

include "stream_import.pyx"
include "account_entry.pyx"
include "service_import.pyx"
