"""Chat clients: import the one you mean from its module."""
