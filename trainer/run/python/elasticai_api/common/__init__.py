"""Has what does not depend on the framework."""
