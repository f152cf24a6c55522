//! A page on loopback that follows the fleet.
//!
//! [`follow`] owns the objects and answers questions about them; [`model`] makes lines of
//! objects and tells which changed, [`timeline`] the life of a host; [`serve`] and [`gate`]
//! are the server of the page, [`assets`] the page. No Secret is read.

mod assets;
mod events;
mod follow;
mod gate;
mod line;
mod model;
mod serve;
mod timeline;
mod trace;

pub(crate) use follow::Follower;
pub(crate) use serve::{Page, serve};
