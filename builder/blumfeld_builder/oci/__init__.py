"""An image of a build as an OCI image layout (image-spec 1.1): folders, tars and JSON, written without a daemon."""
