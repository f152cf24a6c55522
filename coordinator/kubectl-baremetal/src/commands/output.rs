//! The output of a command.

use std::io::IsTerminal as _;

use serde::Serialize;

use crate::arguments::Format;
use crate::failure::Failure;

/// Prints a value as one JSON or YAML document.
pub(super) fn print_document(format: Format, value: &impl Serialize) -> Result<(), Failure> {
    if format == Format::Yaml {
        let text = serde_norway::to_string(value).map_err(Failure::format("write the output"))?;
        anstream::print!("---\n{text}");
    } else {
        let text = serde_json::to_string(value).map_err(Failure::format("write the output"))?;
        anstream::println!("{text}");
    }
    Ok(())
}

pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns of the terminal; `None` for other output.
pub(super) fn terminal_width() -> Option<u16> {
    is_terminal().then(|| console::Term::stdout().size_checked().map(|(_, columns)| columns))?
}
