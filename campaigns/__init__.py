"""Campaigns prove what the project promises, and take minutes to hours. They are not part of the wheel.

``python -m campaigns`` lists them; ``python -m campaigns NAME`` runs one. Both are typed at the top of the checkout.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The top of the checkout."""
