"""The product with tables and checkpoints on an S3 server: runs that take minutes to an hour, by hand."""
