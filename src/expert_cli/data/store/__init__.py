"""Token stores: documents as ids on disk, built once, verified, found again by what they are made of."""
