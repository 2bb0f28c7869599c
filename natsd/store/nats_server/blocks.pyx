"""The compiled part of nats-server's files: frames, message blocks, and their index."""

include "s2.pyx"
include "block_file.pyx"
include "index_file.pyx"
include "record_writer.pyx"
