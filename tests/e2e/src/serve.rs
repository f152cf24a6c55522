//! A base ISO behind a URL, as any web server would have it.

use std::path::PathBuf;

use axum::Router;
use tokio::net::TcpListener;
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
