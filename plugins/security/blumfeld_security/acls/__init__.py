"""ACLs: rules, the section of the image, commands, handlers, and the authorizer."""
