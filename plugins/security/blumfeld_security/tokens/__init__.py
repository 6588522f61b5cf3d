"""Delegation tokens (KIP-48): the section of the image, the commands that change them, and APIs 38 to 41."""
