"""`blumfeld demo`: a market feed through a broker of this build with a real client, and proof that nothing was lost."""
