"""Load on brokers while they are hurt: producers of numbered records, groups that consume them, and what each was told.

At the end the log must have every record that was acknowledged, once and in order, and no group may have lost what it
was promised.
"""
