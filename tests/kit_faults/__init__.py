"""Planted faults: deliberately broken backends, stores, sessions and codecs, each with the sentences that catch it."""
