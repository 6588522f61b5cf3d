"""What a build is made of and promises: the document, its text for a person, and the differences of two."""
