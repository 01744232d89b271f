"""The journal: a record of everything sealed, in the order of sealing."""
