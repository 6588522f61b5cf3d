"""The five codecs of a record batch, with a bound on the decompressed size. Pure."""
