"""The operators, each usable alone in a DAG of your own."""
