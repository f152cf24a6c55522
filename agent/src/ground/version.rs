//! Which agent this is: the version stands in the file itself, where a
//! coordinator that serves it reads it.

use proto::agent_mark::AgentMark;
use semver::Version;

#[cfg(target_arch = "x86_64")]
macro_rules! architecture {
    () => {
        "x86_64"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! architecture {
    () => {
        "aarch64"
    };
}

const MARK: &str = concat!("baremetal-agent-version:", env!("CARGO_PKG_VERSION"), ":", architecture!(), ";");

/// The version of this agent.
pub fn own_version() -> Version {
    // Read from the file as it is: nothing of it is computed by the compiler.
    let mark = AgentMark::find(std::hint::black_box(MARK).as_bytes());
    mark.and_then(|mark| Version::parse(&mark.version).ok()).unwrap_or(Version::new(0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package() {
        assert_eq!(own_version().to_string(), env!("CARGO_PKG_VERSION"));
        let mark = AgentMark::find(MARK.as_bytes()).unwrap();
        assert_eq!(mark.architecture, std::env::consts::ARCH);
    }
}
