"""Messages that outlive the process: logs of blocks, their subject index, and what is durable."""
