//! The agent's verbs `alive` and `check-api`, a stand-in for an API server that answers
//! `/readyz` and nothing else: `make bench` needs a hundred failovers, not Kubernetes. And a
//! check of IPVS, for a machine whose kernel has it.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use agent::alive::{check, supervisor};
use agent::ground::paths::Root;
use anyhow::{Context as _, bail};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use vip::network::Family;
use vip::node::{HUNG, LATE, UNREADY};

/// No answer in time, and none that is given up.
const LATENESS: Duration = Duration::from_millis(2400);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match (runtime, &words[..]) {
        (Ok(runtime), ["--root", root, verb]) => runtime.block_on(run_verb(&Root::at(root), verb)),
        (Ok(runtime), ["serve-readyz", address, directory]) => {
            runtime.block_on(serve_ready(address, Path::new(directory)))
        }
        (_, ["check-spread", family @ ("ipv4" | "ipv6")]) => {
            let family = if *family == "ipv4" { Family::V4 } else { Family::V6 };
            std::env::current_exe()
                .map_err(anyhow::Error::from)
                .and_then(|program| vip::spread::check_spread(family, &program))
        }
        _ => Err(anyhow::anyhow!(
            "--root DIRECTORY alive|check-api, or serve-readyz ADDRESS DIRECTORY, or check-spread ipv4|ipv6"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_verb(root: &Root, verb: &str) -> anyhow::Result<()> {
    match verb {
        "alive" => {
            let program = std::env::current_exe()?;
            let done = supervisor::run(root, &program).await;
            done.map_err(|error| anyhow::anyhow!(error))
        }
        "check-api" => {
            let checked = check::check_api(root).await;
            checked.map(drop).map_err(|error| anyhow::anyhow!(error))
        }
        _ => bail!("there is no verb {verb}"),
    }
}

async fn serve_ready(address: &str, directory: &Path) -> anyhow::Result<()> {
    let chain = CertificateDer::pem_file_iter(directory.join("server.crt"))?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(directory.join("server.key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.context("listen")?;
    let directory = directory.to_owned();
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, directory) = (acceptor.clone(), directory.clone());
        tokio::spawn(async move {
            let Ok(address) = stream.local_addr() else { return };
            // A client that only connects is one of the measurement.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut request = [0; 1024];
            if stream.read(&mut request).await.is_ok() {
                let is_marked = |mark| directory.join(mark).exists();
                if is_marked(HUNG) {
                    std::future::pending::<()>().await;
                }
                if is_marked(LATE) {
                    tokio::time::sleep(LATENESS).await;
                }
                let body = address.ip().to_string();
                let status = if is_marked(UNREADY) { "500 Internal Server Error" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
    }
}
