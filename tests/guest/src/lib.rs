//! Hosts of the lab that run as guests of this machine, whatever runs them: QEMU (`tests/qemu`) or User Mode Linux
//! (`tests/uml`).
//!
//! [`Guest::start`] powers a host on and keeps its state as hardware does: a reset boots it again, a
//! power-off leaves it off, [`Guest::power_cut`] pulls the plug. [`Guest::exec`] runs commands inside by the QEMU guest
//! agent, and the console log shows the rest; every wait has a deadline, and its error says the state that was seen last.
//! All processes end with the [`Guest`], with a panic, and with this process itself.

pub mod agent_port;
pub mod console;
mod error;
mod images;
pub mod life;
mod machine;
mod power;
pub mod process;
pub mod steps;

pub use agent_port::{AgentPort, Output};
pub use error::{ConsoleEnd, LabError};
pub use images::{Image, ImageInputs, Kernel, Network, build};
pub use machine::{Boot, End, Machine};
pub use power::{Guest, PowerState, Stop};
