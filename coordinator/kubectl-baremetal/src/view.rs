//! Views of the objects: rows, steps, trees and descriptions, and their text for a terminal.

mod chain;
mod description;
mod host_row;
mod host_table;
mod steps;
mod text;
mod tree;

pub(crate) use chain::format_chain;
pub(crate) use description::{Description, EventView, format_description};
pub(crate) use host_row::{HostRow, HostState, describe_host, find_state};
pub(crate) use host_table::{Columns, GONE};
pub(crate) use steps::{PlanView, StepState, outline_plan, read_plan};
pub(crate) use text::{format_table, paint, style_of, with_ends};
pub(crate) use tree::{Branch, draw_plan, draw_tree, format_tree};
