"""Campaigns prove what the project promises, and take minutes to hours. They are not part of the wheel.

``python -m campaigns`` lists them; ``python -m campaigns NAME`` runs one.
"""
