"""Tables, figures and self-contained pages."""
