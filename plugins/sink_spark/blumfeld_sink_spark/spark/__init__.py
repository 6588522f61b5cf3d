"""The only package that imports pyspark.

``topics`` asks the broker and reads ranges, ``runtime`` finds Java and starts Spark, ``tasks`` is the code that runs
in Spark's Python workers, and ``run`` drives one run of an archive. ``failures`` has the words for a query that
failed, ``checkpoint`` reads Spark's checkpoint; ``checks`` are the checks of ``archive doctor``.
"""
