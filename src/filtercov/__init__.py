"""filtercov."""
