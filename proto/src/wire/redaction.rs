//! The generated messages that may carry bootstrap data have no derived Debug: one
//! `{:?}` in a log would publish join tokens.

use std::fmt;

use crate::v1alpha1 as wire;

impl fmt::Debug for wire::Seed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Seed(…)")
    }
}

impl fmt::Debug for wire::Keyfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Keyfile({:?})", self.name)
    }
}

impl fmt::Debug for wire::WriteCustomFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WriteCustomFile({:?})", self.path)
    }
}

impl fmt::Debug for wire::RunCustomInstruction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RunCustomInstruction({:?})", self.name)
    }
}

impl fmt::Debug for wire::RegistryAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RegistryAccess(…)")
    }
}

impl fmt::Debug for wire::CoordinatorSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CoordinatorSettings(…)")
    }
}

impl fmt::Debug for wire::BeginRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BeginRequest(…)")
    }
}
