"""Adapters: one file per agent framework, translation only; each needs the extra of its name."""
