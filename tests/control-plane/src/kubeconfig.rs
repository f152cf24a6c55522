//! Kubeconfig files with everything inside.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::pki::Pair;

/// How long a connection may take: longer than any pause a test makes.
const TIME_LIMIT: Duration = Duration::from_mins(3);

/// A kubeconfig could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not one.
    #[error("read a kubeconfig")]
    Read(#[from] kube::config::KubeconfigError),
    /// No client could be made of it.
    #[error("make a client of a kubeconfig")]
    Client(#[from] kube::Error),
}

/// A kubeconfig for `user` at `server` (a URL); the certificates are inside, so that the file can
/// be handed to another program or put into a Secret.
pub fn render(server: &str, authority: &str, user: &str, pair: &Pair) -> String {
    let certificate = STANDARD.encode(&pair.certificate);
    let key = STANDARD.encode(&pair.key);
    let credentials = format!("client-certificate-data: {certificate}\n    client-key-data: {key}");
    render_with(server, authority, user, &credentials)
}

/// The same with a token.
pub fn render_token(server: &str, authority: &str, user: &str, token: &str) -> String {
    render_with(server, authority, user, &format!("token: {token}"))
}

fn render_with(server: &str, authority: &str, user: &str, credentials: &str) -> String {
    let authority = STANDARD.encode(authority);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {user:?}
  user:
    {credentials}
contexts:
- name: default
  context:
    cluster: cluster
    user: {user:?}
current-context: default
"
    )
}

/// A client for the text of a kubeconfig, bound to the tokio runtime that calls this: a test makes
/// its own and never shares one with another test.
///
/// # Errors
/// When the text is not a kubeconfig with usable keys.
pub async fn client(text: &str) -> Result<Client, Error> {
    let kubeconfig = Kubeconfig::from_yaml(text)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // Tests pause API servers for a minute.
    config.connect_timeout = Some(TIME_LIMIT);
    Ok(Client::try_from(config)?)
}
