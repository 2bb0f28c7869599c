"""Messages as Arrow rows: the columns, and the buffers that compiled code fills."""
