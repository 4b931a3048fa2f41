"""Change the filters of a model, all chosen layers or none: draw, assign, initialise, copy, freeze."""
