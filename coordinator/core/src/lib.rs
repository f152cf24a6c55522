//! Every decision, without an effect.
