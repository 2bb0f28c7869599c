"""The keys of encrypted stores, and small files that are encrypted with them."""
