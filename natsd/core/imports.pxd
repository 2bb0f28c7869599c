"""The declarations of imports.pyx."""

include "stream_import.pxd"
include "account_entry.pxd"
include "service_import.pxd"
