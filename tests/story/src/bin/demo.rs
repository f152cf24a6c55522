//! Plays the story live.

fn main() {}
