"""One folder per benchmark or source family: parsers, row types, protocol facts; and the reader of shards."""
