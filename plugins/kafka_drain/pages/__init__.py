"""HTML pages, made of plain values. Opens nothing."""
