//! Which hosts a base image is for.

use std::fmt;

/// Operating system and architecture of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// `linux/amd64`
    Amd64,
    /// `linux/arm64`
    Arm64,
}

impl Platform {
    /// Of programs for an architecture, as the kernel and Rust name it.
    #[must_use]
    pub fn of_architecture(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Of `spec.targetPlatform`, as images and as `elemental` name it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let architecture = text.strip_prefix("linux/")?;
        match architecture {
            "amd64" => Some(Self::Amd64),
            "arm64" => Some(Self::Arm64),
            _ => Self::of_architecture(architecture),
        }
    }

    /// As images name it.
    #[must_use]
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "linux/{}", self.architecture())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_has_the_names_of_its_architecture() {
        for (kernel, image, platform) in
            [("x86_64", "amd64", Platform::Amd64), ("aarch64", "arm64", Platform::Arm64)]
        {
            assert_eq!(Platform::of_architecture(kernel), Some(platform));
            assert_eq!(platform.to_string(), format!("linux/{image}"));
            for name in [kernel, image] {
                assert_eq!(Platform::parse(&format!("linux/{name}")), Some(platform), "{name}");
            }
        }
        for text in ["linux/riscv64", "windows/amd64", "amd64", ""] {
            assert_eq!(Platform::parse(text), None, "{text}");
        }
        assert_eq!(Platform::of_architecture("amd64"), None);
    }
}
