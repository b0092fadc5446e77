"""Neural learners with one network per source."""
