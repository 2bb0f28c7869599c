"""Messages as rows of Arrow: the columns, and the buffers that compiled code fills."""
