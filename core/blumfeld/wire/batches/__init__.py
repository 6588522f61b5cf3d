"""Record batches (magic 2): header, records, control records; building, printing, and the older formats. Pure."""
