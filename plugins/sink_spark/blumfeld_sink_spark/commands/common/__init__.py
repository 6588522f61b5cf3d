"""Code that several verbs share: options, error handling, printing."""
