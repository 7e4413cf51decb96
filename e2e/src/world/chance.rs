//! Whole lives by a seed.
