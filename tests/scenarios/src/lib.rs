//! The story in virtual time.
