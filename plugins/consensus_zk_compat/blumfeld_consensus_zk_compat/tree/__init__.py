"""The tree as values: paths, forms of znodes, what a decision writes, what a node reads. Pure, but for the reader."""
