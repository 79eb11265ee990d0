"""Templates by which the policy writes rubric bundles, one file a version."""
