//! The plugin of kubectl as a program.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    kubectl_baremetal::run_program().await
}

#[cfg(test)]
mod tests {
    #[test]
    fn krew_manifest_names_the_program() {
        let manifest = include_str!("../krew/baremetal.yaml").replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        let manifest =
            manifest.replace("@SHA256@", &"a".repeat(64)).replace("@URL@", "https://releases.example");
        let manifest: serde_json::Value = serde_norway::from_str(&manifest).unwrap();
        let platform = &manifest["spec"]["platforms"][0];
        assert_eq!(platform["bin"], env!("CARGO_BIN_NAME"));
        assert_eq!(manifest["metadata"]["name"], "baremetal");
        assert_eq!(manifest["spec"]["version"], concat!("v", env!("CARGO_PKG_VERSION")));
        assert!(!manifest.to_string().contains('@'), "{manifest}");
    }
}
