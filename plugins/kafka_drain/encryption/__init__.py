"""Keys of encrypted data files: where they are kept, and who can open them."""
