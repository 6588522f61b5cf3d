"""``blumfeld plan``: what a build is made of and promises."""
