//! A page on loopback that follows the fleet (decision 37).
//!
//! [`follow`] owns the objects and answers questions about them. [`model`] makes lines of objects
//! and finds the lines that changed; [`timeline`] draws the life of a host. [`serve`] and [`gate`]
//! are the server, [`assets`] the files of the page. No Secret is read.

mod assets;
mod events;
mod follow;
mod gate;
mod line;
mod model;
mod serve;
mod timeline;

pub(crate) use follow::Follower;
pub(crate) use serve::{Page, serve};
