//! Fetches the base ISO out of the layers of an image.

use bytes::Bytes;
use coordinator_core::seed_image::image_files::Ambiguous;
use futures::future;
use hyper::body::Incoming;
use oci_spec::image::Descriptor;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::execute::{Executor, next_data};
use super::keep::Arrived;
use super::layer::{Extraction, LayerError};
use super::ledger::Room;
use super::registry::Registry;
use super::{BaseImageError, manifest};

/// Number of pieces of a layer that may wait for the disk.
const WAITING: usize = 16;

impl Executor {
    /// Fetches all layers, from the top down, because only the last one tells if the image has a
    /// single ISO.
    pub(super) async fn fetch_layers(
        &self,
        registry: &mut Registry<'_>,
        layers: &[Descriptor],
        room: Room,
    ) -> Result<Arrived, BaseImageError> {
        let total = layers.iter().fold(0, |total: u64, layer| total.saturating_add(layer.size()));
        if total > room.limit {
            return Err(BaseImageError::TooLarge { url: registry.shown.clone() });
        }
        let mut extraction = Extraction::new(room);
        for layer in layers.iter().rev() {
            extraction = self.fetch_layer(registry, layer, extraction).await?;
        }
        extraction.finish().map_err(|found: Ambiguous| BaseImageError::ambiguous(&registry.shown, &found))
    }

    async fn fetch_layer(
        &self,
        registry: &mut Registry<'_>,
        layer: &Descriptor,
        mut extraction: Extraction,
    ) -> Result<Extraction, BaseImageError> {
        let digest = manifest::sha256_of(registry, layer)?;
        let response = registry.get(&format!("blobs/{digest}"), None).await?;
        let (sender, pieces) = mpsc::channel(WAITING);
        let scan = tokio::task::spawn_blocking(move || {
            let scanned = extraction.scan_layer(pieces);
            (extraction, scanned)
        });
        let sent = send_pieces(&registry.shown, response.into_body(), layer, sender);
        let (sent, scanned) = future::join(sent, scan).await;
        let (extraction, scanned) =
            scanned.map_err(|stopped| self.ledger.store_error(std::io::Error::other(stopped)))?;
        // This error comes first, because it is the cause if the scan stopped.
        sent?;
        match scanned {
            Ok(()) => Ok(extraction),
            Err(LayerError::Stopped) => Err(registry.fetch_error("a layer stopped")),
            Err(LayerError::Malformed(why)) => Err(registry.malformed(&format!("layer {digest}: {why}"))),
            Err(LayerError::Keep(error)) => Err(error.describe(&registry.shown, &self.ledger)),
        }
    }
}

/// Sends a layer to the scan. The end is sent only if size and digest are those of the descriptor.
async fn send_pieces(
    image: &str,
    mut body: Incoming,
    layer: &Descriptor,
    sender: mpsc::Sender<Option<Bytes>>,
) -> Result<(), BaseImageError> {
    let (mut hash, mut size) = (Sha256::new(), 0_u64);
    let digest = layer.digest().to_string();
    let corrupt = BaseImageError::Corrupt { image: image.to_owned(), digest: digest.clone() };
    while let Some(data) = next_data(image, &mut body).await? {
        size += data.len() as u64;
        if size > layer.size() {
            return Err(corrupt);
        }
        hash.update(&data);
        if sender.send(Some(data)).await.is_err() {
            return Ok(());
        }
    }
    if size != layer.size() || format!("sha256:{}", hex::encode(hash.finalize())) != digest {
        return Err(corrupt);
    }
    // The scan of a malformed layer has ended, and receives no end.
    let _ = sender.send(None).await;
    Ok(())
}
