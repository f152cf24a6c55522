//! A base ISO behind a URL, as any web server would have it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use axum::Router;
use tokio::net::TcpListener;
use tokio::process::Command;
use tower_http::services::ServeFile;

/// Serves the file on loopback until the process ends; gives its URL.
///
/// # Errors
/// When there is no port.
pub async fn serve(file: PathBuf) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route_service("/base.iso", ServeFile::new(file));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}/base.iso"))
}

/// Makes a base ISO with the reserved file and nothing to boot: all that a simulated host needs.
///
/// # Errors
/// When xorriso fails.
pub async fn create_base_iso(directory: &Path) -> anyhow::Result<PathBuf> {
    let content = directory.join("base");
    std::fs::create_dir_all(&content)?;
    std::fs::write(content.join("livecd-cloud-config.yaml"), "\n".repeat(65536))?;
    let iso = directory.join("base.iso");
    let mut xorriso = Command::new("xorriso");
    xorriso.args(["-as", "mkisofs", "-quiet", "-R", "-V", "COS_LIVE", "-o"]).args([&iso, &content]);
    let output = xorriso.output().await.context("run xorriso")?;
    ensure!(output.status.success(), "xorriso: {}", String::from_utf8_lossy(&output.stderr));
    Ok(iso)
}
