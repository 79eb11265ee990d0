"""The embedded judge: rubrics of a household-like text world decided by rules."""
