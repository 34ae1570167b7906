"""Word senses: inventories, tagging, scoring, induction."""
